"""A pool of workers: threads that each drive a cluster of their own, and that one Ctrl-C ends."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lab.engine.interrupts import taking
from lab.plan.cluster import Shape
from lab.run.collect import Observer
from lab.run.lock import ClusterLock
from lab.run.place import ClusterSlot, Place

PATIENCE_S = 60.0
"""How long workers may take to remove what they made; what is left then, the next command removes."""
_POLL_S = 0.1


class WorkerPool(Observer):
    """Workers side by side; the observer of their runs, which cuts these short once the pool is stopping."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        """Whoever reads or changes what workers share holds it."""
        self.stopping = False

    def tick(self, elapsed_s: float, running: int, where: Any) -> None:
        """About once a second."""
        if self.stopping:
            raise KeyboardInterrupt

    def run(
        self,
        workers: Sequence[Callable[[], None]],
        *,
        tick: Callable[[], None] = lambda: None,
        interrupted: Callable[[], None],
    ) -> None:
        """Run all workers to their end; when one raises an error, the others are cut short.

        Args:
            workers: what each does; it ends at KeyboardInterrupt.
            tick: called some times a second.
            interrupted: called at Ctrl-C, before the workers are cut short.

        Raises:
            Exception: that of the first worker that raised one.
        """
        errors: list[Exception] = []
        came = threading.Event()

        def work(worker: Callable[[], None]) -> None:
            try:
                worker()
            except KeyboardInterrupt:
                pass  # its run was cut short
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)
                self.stopping = True

        threads = [threading.Thread(target=work, args=(worker,), name="pool worker", daemon=True) for worker in workers]
        end = math.inf
        with taking(lambda *_: came.set(), callable):
            for thread in threads:
                thread.start()
            while (alive := [thread for thread in threads if thread.is_alive()]) and time.monotonic() < end:
                with self.turn:
                    if came.is_set() and end == math.inf:
                        interrupted()
                        self.stopping, end = True, time.monotonic() + PATIENCE_S
                    tick()
                alive[0].join(_POLL_S)
        if errors:
            raise errors[0]


@contextmanager
def cluster_slot(
    place: Place, shape: Shape, made_for: str | None, purpose: str, wait_s: float = 0.0
) -> Iterator[ClusterSlot]:
    """The lock of a place and its cluster, which is made when a run needs it, and removed at the end.

    Args:
        place: where.
        shape: of the cluster that is made.
        made_for: what it is made for; None: the one that is there is used, and stays.
        purpose: what the lock is held for.
        wait_s: how long to wait for somebody else who holds it.
    """
    lock = ClusterLock(place.engine.name, place.name)
    with lock.held(purpose, wait_s):
        there = place.usable(lock, remake=True) if made_for is None else None
        slot = ClusterSlot(place=place, shape=shape, cluster=there, made_for=made_for)
        try:
            yield slot
        finally:
            slot.clear()
    if made_for is not None:
        lock.path.unlink(missing_ok=True)  # nobody else has a cluster of this name, now or later
