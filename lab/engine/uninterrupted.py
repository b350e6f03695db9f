"""What has to be done to its end, however often somebody presses Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put signals that would interrupt off until the block is done; then they do.

    Only the main thread is ever interrupted; elsewhere there is nothing to put off.
    """
    came = False

    def note(*_: object) -> None:
        nonlocal came
        came = True

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if callable(handler):
            try:
                signal.signal(number, note)
            except ValueError:  # not the main thread
                break
            before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
