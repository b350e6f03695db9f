"""What Ctrl-C, SIGTERM and SIGHUP do to a command: the first ends it, and what it made is removed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_CLEANING_UP_S = 10.0
"""A further one so soon after the first does not cut short what that has begun."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals; say at further ones that the end is near."""
    interrupt = _interrupt()
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            try:
                signal.signal(number, interrupt)
            except ValueError:  # not the main thread, which alone is interrupted
                break
            before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt() -> Callable[..., None]:
    last = -_CLEANING_UP_S

    def interrupt(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _CLEANING_UP_S:
            with suppress(OSError):
                os.write(2, b"interrupted; removing what was made, which takes a moment\n")
            return
        last = now
        raise KeyboardInterrupt

    return interrupt
