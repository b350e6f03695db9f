"""Wait: poll a condition until it holds or a deadline passes, or for parallel calls. The lab polls only here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_AT_ONCE = 8
"""Number of parallel calls: each mostly waits for another program."""


def poll_until(ask: Callable[[], T], limit_s: float, every_s: float = 0.005, enough: Callable[[T], object] = bool) -> T:
    """Call `ask` until its answer is enough or the time is up; return the last answer, which shows which it was.

    Args:
        ask: returns an answer; an exception ends the polling.
        limit_s: how long to poll, in seconds; `ask` is called at least once.
        every_s: pause between two calls, in seconds.
        enough: whether an answer ends the polling; by default, a true one.
    """
    end = time.monotonic() + limit_s
    while not enough(answer := ask()) and time.monotonic() < end:
        time.sleep(every_s)
    return answer


def map_parallel(action: Callable[[U], T], items: Iterable[U]) -> list[T]:
    """Apply a function to all items in parallel; raise the first error after all have ended."""
    from concurrent.futures import ThreadPoolExecutor  # a slow import, and most commands have one item

    items = list(items)
    if len(items) < 2:
        return [action(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(action, items))
