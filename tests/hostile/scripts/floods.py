"""Says, takes or writes more than it may. Arguments: what, and how much."""

import contextlib
import os
import sys
import threading
import time

from lab import note

MIB = 1 << 20

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
elif what == "small programs":  # smaller than the agent, and as precious as it
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    hold = "import sys, time; sys.stdin.read(); held = b'x' * 20_000_000; time.sleep(600)"
    begin, go = os.pipe()
    for _ in range(80):
        os.posix_spawn(
            sys.executable, [sys.executable, "-Sc", hold], {}, file_actions=[(os.POSIX_SPAWN_DUP2, begin, 0)]
        )
    os.close(begin)
    os.close(go)
    while True:
        time.sleep(1)
elif what == "threads":
    refused = False
    while not refused:
        try:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        except RuntimeError:
            refused = True
elif what == "shm":  # stays when its writer is killed
    for number in range(100):
        with open(f"/dev/shm/flood{number}", "wb") as file, contextlib.suppress(OSError):
            for _ in range(amount // 100 // MIB):
                file.write(bytes(MIB))
    held = [bytes(MIB) for _ in range(amount // MIB)]
elif what == "trace":
    trace = -1
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "memfd:trace" in os.readlink(f"/proc/self/fd/{entry}"):
                trace = int(entry)
    for _ in range(amount // MIB):
        os.write(trace, b"x" * (MIB - 1) + b"\n")
elif what in ("disk", "files without a name") and os.environ["RANK"] == "0":
    kept = []
    for number in range(amount // (8 * MIB)):
        kept.append(open(f"file{number}", "wb"))
        if what != "disk":
            os.unlink(f"file{number}")
        for _ in range(8):
            kept[-1].write(os.urandom(MIB))
        kept[-1].flush()
    time.sleep(600)
