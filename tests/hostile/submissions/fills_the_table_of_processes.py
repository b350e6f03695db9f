"""Starts threads and zombies until no more can be had, and keeps them."""

import contextlib
import os
import threading
import time

for _ in range(2000):
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    with contextlib.suppress(OSError):
        if os.fork() == 0:
            os._exit(0)
time.sleep(600)
