"""Makes files without end, all empty: no byte is written, but memory is. It ends at the limit of memory, or of time."""

import contextlib
import itertools
import os

for number in itertools.count():
    for folder in (".", "/tmp", "/dev/shm", "/shared"):
        with contextlib.suppress(OSError):
            os.close(os.open(f"{folder}/{os.getpid()}-{number}", os.O_CREAT | os.O_WRONLY))
