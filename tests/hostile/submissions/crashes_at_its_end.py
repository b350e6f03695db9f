"""Does nothing and raises when it ends, in a thread, in its excepthook, and crashes after that."""

import atexit
import ctypes
import os
import sys
import threading


def crash():
    threading.Thread(target=lambda: 1 / 0).start()
    ctypes.string_at(0)


sys.excepthook = lambda *_: os.kill(os.getpid(), 6)
atexit.register(crash)
raise RuntimeError("the sum is 12941")
