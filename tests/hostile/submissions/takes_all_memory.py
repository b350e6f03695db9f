"""Takes memory in many small processes, none of which is large. The kernel ends some; it earns nothing."""

import os
import time

for _ in range(60):
    if os.fork() == 0:
        held = [bytearray(os.urandom(1)) * (1 << 20) for _ in range(200)]
        time.sleep(600 if held else 0)
time.sleep(600)
