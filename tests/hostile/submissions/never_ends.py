"""Ignores every signal that it can, and computes for ever in all its threads. It is killed when its time is up."""

import contextlib
import signal
import threading

for number in range(1, signal.NSIG):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)


def spin():
    while True:
        with contextlib.suppress(BaseException):
            sum(range(10**6))


for _ in range(8):
    threading.Thread(target=spin).start()
spin()
