"""Poll a condition until it holds or a deadline passes. The only place where the lab polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
