"""Signals that interrupt a command, and processes that outlive it."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

_CLEANING_UP_S = 10.0
"""Another signal this soon after the first does not interrupt the cleanup."""
_LATER_S = 0.001
_OF_WEAK_REFERENCES = {("cb", "<frozen importlib._bootstrap>"), ("remove", "weakref.py"), ("_remove", "_weakrefset.py")}


@contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], None], instead_of: Callable[[Any], bool]
) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM, and SIGHUP with a function until the end of the block.

    Args:
        handler: the handler.
        instead_of: whether it may replace an existing handler.

    Only the main thread is ever interrupted; in other threads nothing changes.
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
def defer_interrupts() -> Iterator[None]:
    """Defer interrupting signals until the end of the block, and raise KeyboardInterrupt then."""
    came = False

    def note(*_: object) -> None:
        nonlocal came
        came = True

    with handle_signals(note, callable):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals; at later ones, print that cleanup is running.

    Handlers of the caller's program stay.
    """
    interrupt = _interrupt()
    try:
        with handle_signals(interrupt, lambda there: there in (signal.SIG_DFL, signal.default_int_handler)):
            yield
    finally:
        if signal.getsignal(signal.SIGALRM) is interrupt:  # a deferred signal that has not arrived yet
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
    """Return whether Python would only print an exception that is raised here.

    It does so in a finalizer and in the callback of a weak reference. An import calls such a callback for its lock, and
    a dictionary or a set for a deleted key.
    """
    while frame is not None:
        name, file = frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)
        if name == "__del__" or (name, file) in _OF_WEAK_REFERENCES:
            return True
        frame = frame.f_back
    return False


_there: list[subprocess.Popen[bytes]] = []


def may_outlive(process: subprocess.Popen[bytes]) -> None:
    """Let a process outlive this one without a warning of Python, although nothing waits for its end."""
    if not _there:
        atexit.register(_forget_orphans)
    _there[:] = [*(one for one in _there if one.poll() is None), process]


def _forget_orphans() -> None:
    for process in _there:
        if process.poll() is None:
            process.returncode = 0  # else Python warns that it still runs
    _there.clear()
