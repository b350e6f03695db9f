"""Waiting until something is so, which others bring about: the one place where the lab asks again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def poll_until(ask: Callable[[], T], limit_s: float, every_s: float = 0.005, enough: Callable[[T], object] = bool) -> T:
    """Ask until the answer is enough or the time is up; returns the last answer, which tells which of both it was.

    Args:
        ask: returns an answer; what it raises ends the wait.
        limit_s: how long to go on asking, in seconds; it is asked once at least.
        every_s: how long to wait before asking again, in seconds.
        enough: whether an answer ends the wait; by default, one that is true.
    """
    end = time.monotonic() + limit_s
    while not enough(answer := ask()) and time.monotonic() < end:
        time.sleep(every_s)
    return answer
