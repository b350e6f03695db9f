"""Who takes the signals that interrupt a command, and what is done to its end however often they come."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


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
