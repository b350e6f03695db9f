"""A pool of threads: each drives its own cluster, and one Ctrl-C ends all."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lab.engine.interrupts import handle_signals
from lab.plan.cluster import Shape
from lab.run.cluster_slot import ClusterSlot, WarmCluster
from lab.run.collect import Observer
from lab.run.lock import ClusterLock

PATIENCE_S = 60.0
"""Seconds that workers get to remove their clusters after Ctrl-C; the next command removes the remaining ones."""
_POLL_S = 0.1


class WorkerPool(Observer):
    """Run workers in parallel. The pool observes their runs, and interrupts these once it is stopping."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        """Hold this to read or change data that workers share."""
        self.stopping = False

    def tick(self, elapsed_s: float, running: int, where: Any) -> None:
        """Interrupt the run of a worker if the pool is stopping; called about once a second."""
        if self.stopping:
            raise KeyboardInterrupt

    def run(
        self,
        workers: Sequence[Callable[[], None]],
        *,
        tick: Callable[[], None] = lambda: None,
        interrupted: Callable[[], None],
    ) -> None:
        """Run all workers to their end. When one raises an error, interrupt the others.

        Args:
            workers: functions that each run in a thread and end at KeyboardInterrupt.
            tick: called several times a second.
            interrupted: called at Ctrl-C, before the workers are interrupted.

        Raises:
            Exception: the first exception that a worker raised.
        """
        errors: list[Exception] = []
        interrupt_received = threading.Event()

        def work(worker: Callable[[], None]) -> None:
            try:
                worker()
            except KeyboardInterrupt:
                pass  # its run was interrupted
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)
                self.stopping = True

        threads = [threading.Thread(target=work, args=(worker,), name="pool worker", daemon=True) for worker in workers]
        deadline = math.inf
        with handle_signals(lambda *_: interrupt_received.set(), callable):
            for thread in threads:
                thread.start()
            while (alive := [thread for thread in threads if thread.is_alive()]) and time.monotonic() < deadline:
                with self.turn:
                    if interrupt_received.is_set() and deadline == math.inf:
                        interrupted()
                        self.stopping, deadline = True, time.monotonic() + PATIENCE_S
                    tick()
                alive[0].join(_POLL_S)
        if errors:
            raise errors[0]


@contextmanager
def hold_warm_cluster(
    slot: ClusterSlot, shape: Shape, made_for: str | None, purpose: str, wait_s: float = 0.0
) -> Iterator[WarmCluster]:
    """Lock a cluster slot and yield its cluster, which is created when a run needs it and removed at the end.

    Args:
        slot: engine and name of the cluster.
        shape: of a cluster that has to be created.
        made_for: the run or command that it is created for; None: use the existing one, and keep it.
        purpose: why the lock is held.
        wait_s: seconds to wait for another holder of the lock.
    """
    lock = ClusterLock(slot.engine.name, slot.name)
    with lock.held(purpose, wait_s):
        cluster = slot.find_usable(lock, remake=True) if made_for is None else None
        warm_cluster = WarmCluster(slot=slot, shape=shape, cluster=cluster, made_for=made_for)
        try:
            yield warm_cluster
        finally:
            warm_cluster.clear()
    if made_for is not None:
        lock.path.unlink(missing_ok=True)  # no other command uses a cluster of this name, now or later
