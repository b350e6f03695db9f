"""What ends with a command and what does not: signals that interrupt it, and processes that outlive it."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_CLEANING_UP_S = 10.0
"""A further one so soon after the first does not cut short what has begun."""
_LATER_S = 0.001
_OF_WEAK_REFERENCES = {
    ("cb", "<frozen importlib._bootstrap>"),
    ("remove", "weakref.py"),
    ("_remove", "_weakrefset.py"),
}


@contextmanager
def taking(handler: Callable[[int, FrameType | None], None], instead_of: Callable[[Any], bool]) -> Iterator[None]:
    """Have a handler take Ctrl-C, SIGTERM and SIGHUP until the block is done, where it may stand in for the one there.

    Only the main thread is ever interrupted; elsewhere nothing changes.
    """
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        there = signal.getsignal(number)
        if instead_of(there):
            try:
                signal.signal(number, handler)
            except ValueError:  # not the main thread
                break
            before[number] = there
    try:
        yield
    finally:
        for number, there in before.items():
            signal.signal(number, there)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put signals that would interrupt off until the block is done; then they do."""
    came = False

    def note(*_: object) -> None:
        nonlocal came
        came = True

    with taking(note, callable):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals; say at further ones that the end is near.

    Handlers that somebody else has put there stay.
    """
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
    """Whether Python would only print what is raised here: in a finalizer, or where a weak reference lets go.

    The latter is what an import does with its lock, and a dictionary or a set with a key that is gone.
    """
    while frame is not None:
        name, file = frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)
        if name == "__del__" or (name, file) in _OF_WEAK_REFERENCES:
            return True
        frame = frame.f_back
    return False


_there: list[subprocess.Popen[bytes]] = []


def may_outlive(process: subprocess.Popen[bytes]) -> None:
    """Nobody waits for the end of a process; if it ends before this one, that is taken note of."""
    if not _there:
        atexit.register(_let_go)
    _there[:] = [*(one for one in _there if one.poll() is None), process]


def _let_go() -> None:
    for process in _there:
        if process.poll() is None:
            process.returncode = 0  # else Python says that it still runs
    _there.clear()
