"""Follows a long answer of the engine with a deadline on its silence."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from lab.engine.image.progress import Event


class Silent(Exception):
    """Nothing was heard for longer than allowed."""


def follow(start: Callable[[Callable[[Event], None]], Iterable[Event]], silent_s: float) -> Iterator[Event]:
    """Yields the events of a request that is made in a thread of its own.

    docker-py has no time-out for the silence of a pull, and a build blocks while its context is sent. In a thread both
    can be waited for with a deadline, and Ctrl-C gets through at once.

    `start` makes the request and returns its stream; it is given a function that adds an event of its own. It
    ends with `Silent`, or with whatever the request raised; the thread ends at the next event or with the process, and
    the engine stops its work when the connection closes.
    """
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()

    def pump() -> None:
        try:
            for event in start(events.put):
                if left.is_set():
                    return
                events.put(event)
        except BaseException as error:  # noqa: BLE001  (handed over whole to the thread that waits)
            events.put(error)
        else:
            events.put(None)

    threading.Thread(target=pump, name="lab-image", daemon=True).start()
    try:
        while True:
            try:
                event = events.get(timeout=silent_s)
            except queue.Empty:
                raise Silent from None
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        left.set()
