"""Says more than it may. Argument: what."""

import os
import sys
import time

from lab import note

what, amount = sys.argv[1], int(sys.argv[2])
if what == "output":
    line = "x" * 9_999 + "\n"
    for _ in range(amount // len(line)):
        sys.stdout.write(line)
elif what == "notes":
    for number in range(amount // 100_000):
        note(f"note {number}", "x" * 99_900)
elif what in ("processes", "bomb"):
    if what == "bomb":  # it goes on when this has ended
        bomb = "bomb() { bomb | bomb & }; while true; do bomb; done"
        os.posix_spawn("/bin/sh", ["sh", "-c", bomb], {"PATH": "/bin"})
    refused = 0
    while refused < 3:
        try:
            os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        except OSError:
            refused += 1
elif what == "memory":
    for _ in range(64):
        if os.fork() == 0:
            held = b"x" * 40_000_000
            time.sleep(600)
            os._exit(len(held) % 2)
    while True:
        time.sleep(1)
