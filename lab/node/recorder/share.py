"""The `cpu` lines: how long threads have run, and how long they have waited for a core, as their kernel counts it.

The thread that trains stands by itself. The others of its process carry the bytes of its calls.
"""

from __future__ import annotations

import os
import threading

from .journal import journal

_DENSE, _SPARSE = 16, 32
"""After each of the first steps of an optimizer, then after every so many."""
_MOST_BYTES = 64


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
            here = str(threading.get_native_id())
            ran, queued = _look(here)
            others = [_look(thread) for thread in os.listdir("/proc/self/task") if thread != here]
        except (OSError, ValueError):
            return
        beside, beside_queued = sum(one for one, _ in others), sum(one for _, one in others)
        journal.add("cpu", ran=ran, queued=queued, beside=beside, beside_queued=beside_queued)


def _look(thread: str) -> tuple[int, int]:
    """Nanoseconds that a thread ran, and that it was queued."""
    file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)  # `open` takes twice as long
    try:
        ran, queued = os.read(file, _MOST_BYTES).split()[:2]
    finally:
        os.close(file)
    return int(ran), int(queued)


share = Share()
"""That of this process."""
