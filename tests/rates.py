"""Whether links are as fast as they are asked to be, on a machine that has other things to do."""

from __future__ import annotations

from collections.abc import Callable


def reaches(measure: Callable[[], float], asked: float) -> bool:
    """Whether a rate is kept: never more, and as much, unless this machine has other things to do each time."""
    for _ in range(8):
        rate = measure()
        assert rate < asked * 1.1
        if rate > asked * 0.9:
            return True
    return False
