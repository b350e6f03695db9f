"""Makes files whose names nobody can print: as long as can be, of bytes that are no text, in folders without end."""

import contextlib
import os

names = [b"x" * 255, b"\xff" * 255, b"a\nb\r\x1b]0;owned\x07", b"-rf", b"..\\..", b"<img src=x>", b"answer.json "]
for name in names:
    with contextlib.suppress(OSError):
        open(name, "w").write("x")
for _ in range(3000):
    with contextlib.suppress(OSError):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
