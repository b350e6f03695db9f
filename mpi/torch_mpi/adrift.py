"""Calls under way that nobody waits for any more, with what keeps their memory, which MPI still reads or writes."""

from __future__ import annotations

import threading
from typing import Protocol


class Request(Protocol):
    """What MPI gives for a call that it has begun."""

    def Test(self) -> bool:
        """Whether the call is done."""


_adrift: list[tuple[Request, object]] = []
_lock = threading.Lock()


def keep(request: Request, kept: object) -> None:
    """Keep this until that call is done."""
    _adrift.append((request, kept))


def let_go_of_done() -> None:
    """Keep what belongs to calls no longer that are done by now."""
    if _adrift and _lock.acquire(blocking=False):
        try:
            for one in list(_adrift):
                if one[0].Test():
                    _adrift.remove(one)
        finally:
            _lock.release()
