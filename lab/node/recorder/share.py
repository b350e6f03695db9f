"""The `cpu` lines: how long this thread has run, and how long it has waited for a core, as its kernel counts it."""

from __future__ import annotations

from .journal import journal

_DENSE, _SPARSE = 16, 16
"""After each of the first steps of an optimizer, then after every so many."""


class Share:
    """Counts steps, and looks now and then."""

    def __init__(self) -> None:
        self._steps = 0

    def after_step(self) -> None:
        """Say it, where it is time and the kernel tells."""
        self._steps += 1
        if not journal.on or (self._steps > _DENSE and self._steps % _SPARSE):
            return
        try:
            with open("/proc/thread-self/schedstat", "rb") as file:
                ran, queued = file.read().split()[:2]
            journal.add("cpu", ran=int(ran), queued=int(queued))
        except (OSError, ValueError):
            pass


share = Share()
"""That of this process."""
