"""What Ctrl-C, SIGTERM and SIGHUP do to a command: the first ends it, and what it made is removed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from lab.engine.uninterrupted import taking

_CLEANING_UP_S = 10.0
"""A further one so soon after the first does not cut short what has begun."""
_LATER_S = 0.001


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals; say at further ones that the end is near."""
    interrupt = _interrupt()
    try:
        with taking(interrupt, lambda there: there in (signal.SIG_DFL, signal.default_int_handler)):
            yield
    finally:
        if signal.getsignal(signal.SIGALRM) is interrupt:  # one that was put off and has not come yet
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _interrupt() -> Callable[[int, FrameType | None], None]:
    last = -_CLEANING_UP_S

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal last
        if _would_be_lost(frame):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, _LATER_S)
            return
        now = time.monotonic()
        if now - last < _CLEANING_UP_S:
            with suppress(OSError):
                os.write(2, b"interrupted; removing what was made, which takes a moment\n")
            return
        last = now
        raise KeyboardInterrupt

    return interrupt


def _would_be_lost(frame: FrameType | None) -> bool:
    """Whether Python would only print what is raised here: in a finalizer, or when an import lets go of its lock."""
    while frame is not None:
        name = frame.f_code.co_name
        if name == "__del__" or (name == "cb" and "importlib" in frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
