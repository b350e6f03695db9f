"""The worker processes of a suite: each runs cases one after the other on a warm cluster of its own.

From its parent a worker receives a `Task`, or None: there are no more. It sends lines of progress, `Begun`, `Ended`,
and an error where it cannot work at all.

A worker is a session of its own: Ctrl-C at a terminal reaches the parent alone, which passes it on once. When the
parent dies, however it dies, the worker ends as if it was interrupted: the run is cancelled and its cluster removed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import NamedTuple

from lab.engine.interrupts import interruptible
from lab.errors import LabError, MachineLacks, unforeseen
from lab.features.suite.cases import Attempt
from lab.plan.cluster import Shape
from lab.record.result import Result
from lab.run.collect import Observer
from lab.run.lock import ClusterLock
from lab.run.options import RunOptions
from lab.run.place import ClusterSlot, Place, refuse_foreign_wishes
from lab.spec.scenario import Scenario

LAST_PATIENCE_S = 60.0
"""How long a worker may take to remove what it made, before it is killed; the next command removes the rest."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a worker; its parent blocks them while it begins one."""


class Task(NamedTuple):
    """One run for a worker."""

    scenario: Scenario
    options: RunOptions
    shape: Shape
    """What its cluster has to be; one in this shape is made in the place of one that is not."""


class Begun(NamedTuple):
    """From a worker: the run begins."""

    made_s: float | None
    """Seconds that making its cluster took; None: it was there."""


class Ended(NamedTuple):
    """From a worker: what came of the run."""

    attempt: Attempt
    lacking: bool
    """Whether it could not begin because this machine lacks what it needs."""
    no_cluster: bool
    """Whether it could not begin because its cluster could not be made."""
    last: bool
    """Whether the rest is not wanted after this, or cannot be had."""


# -- in the process of a worker


class _Tasks(Observer):
    """Runs tasks on the cluster of a worker, and passes on what runs say of their progress."""

    def __init__(self, place: Place, suite: str, connection: Connection, *, stays: bool) -> None:
        self._place = replace(place, announce=self.progress)
        self._suite, self._stays, self._connection = suite, stays, connection

    def work(self, parent_lives: int, foreign: Sequence[int]) -> None:
        """Run tasks until there are no more, or the parent is gone.

        Args:
            parent_lives: a descriptor that ends when the parent does.
            foreign: descriptors of the parent's that are open here too, and must not be.
        """
        for descriptor in foreign:
            os.close(descriptor)
        for number in _INTERRUPTS:
            if signal.getsignal(number) is signal.SIG_IGN:  # as a shell has it for what it starts in the background
                signal.signal(number, signal.SIG_DFL)
        with interruptible():
            try:
                os.setsid()
                main = threading.get_ident()

                def watch() -> None:
                    os.read(parent_lives, 1)
                    signal.pthread_kill(main, signal.SIGTERM)

                threading.Thread(target=watch, daemon=True).start()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
                self._run_all()
            except (KeyboardInterrupt, EOFError, ConnectionError):  # the latter two: the parent listens no more
                pass
            except Exception as error:  # noqa: BLE001  # its parent tells it
                self._send(error if isinstance(error, LabError) else unforeseen(error))

    def progress(self, text: str) -> None:
        """A line of progress."""
        self._send(text)

    def _send(self, message: object) -> None:
        """Send something to the parent, if it lives."""
        with suppress(OSError):
            self._connection.send(message)

    def _run_all(self) -> None:
        task: Task | None = self._connection.recv()
        if task is None:
            return
        place, made_for = self._place, None if self._stays else self._suite
        lock = ClusterLock(place.engine.name, place.name)
        with lock.held(f"suite {self._suite}", task.options.wait_s):
            there = place.usable(lock, remake=True) if self._stays else None
            slot = ClusterSlot(place=place, shape=task.shape, cluster=there, made_for=made_for)
            try:
                while task is not None:
                    if slot.shape != task.shape and not self._stays:
                        slot.clear()
                        slot.shape = task.shape
                    ended = self._run(slot, task)
                    self._send(ended)
                    task = None if ended.last else self._connection.recv()
            finally:
                slot.clear()

    def _run(self, slot: ClusterSlot, task: Task) -> Ended:
        """One run; what keeps it from beginning is its outcome."""
        began, making, made_s = time.monotonic(), False, None
        outcome: Result | LabError
        try:
            refuse_foreign_wishes(task.scenario, slot.place.engine, slot.place.asked, task.options)
            if slot.cluster is None:
                making = True
                slot.make_ready()
                making, made_s = False, time.monotonic() - began
                began = time.monotonic()
            self._send(Begun(made_s))
            outcome = slot.try_run(task.scenario, task.options, self)
        except LabError as error:
            outcome = error
        took_s, last = time.monotonic() - began, slot.is_last(outcome)
        if isinstance(outcome, Result):
            return Ended(Attempt(result=outcome, took_s=took_s), lacking=False, no_cluster=False, last=last)
        reason, code = outcome.message, outcome.exit_code
        result = Result(verdict="error", reason=reason, scenario=task.scenario.name, exit_code=code, duration_s=None)
        attempt = Attempt(result=result, hint=outcome.hint, took_s=took_s)
        return Ended(attempt, lacking=isinstance(outcome, MachineLacks), no_cluster=making, last=last)


# -- in their parent


@dataclass
class Worker:
    """One worker process, as its parent has it."""

    number: int
    process: ForkProcess
    connection: Connection
    cluster: Shape | None = None
    """What its cluster was asked to be; None: it has none."""
    case: int | None = None
    """The number of the case that it has; None: it is idle."""
    since: float = 0.0
    """Monotonic time since which it runs that; 0: it makes its cluster first."""
    over: bool = False
    """Whether it has ended, or is about to."""

    def send(self, task: Task, case: int) -> None:
        """Have it run a case."""
        self.case, self.cluster, self.since = case, task.shape, 0.0
        with suppress(OSError):  # it has died, which is found out when it is listened to
            self.connection.send(task)

    def dismiss(self) -> None:
        """Have it remove its cluster and end."""
        if not self.over:
            self.over = True
            with suppress(OSError):
                self.connection.send(None)


@contextmanager
def worker_pool(places: Sequence[Place], suite: str, *, stays: bool) -> Iterator[list[Worker]]:
    """Workers, one for each place, begun before there are threads; at the end, all have ended, or are killed.

    Args:
        places: where the cluster of each is, or is made.
        suite: what a cluster is made for, and removed after.
        stays: whether the cluster is there, and stays.
    """
    dies, lives = os.pipe()
    workers: list[Worker] = []
    context = get_context("fork")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        for number, place in enumerate(places, start=1):
            mine, its = context.Pipe()
            foreign = [lives, mine.fileno(), *(worker.connection.fileno() for worker in workers)]
            work = _Tasks(place, suite, its, stays=stays).work
            process = context.Process(target=work, args=(dies, foreign), name=f"suite worker {number}")
            process.start()
            its.close()
            workers.append(Worker(number, process, mine))
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield workers
    except BaseException:
        interrupt(workers)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for worker in workers:
            worker.dismiss()
            worker.connection.close()  # whoever still says something is not heard, and must not wait for that
        end = time.monotonic() + LAST_PATIENCE_S
        for worker in workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        os.close(lives)
        os.close(dies)


def interrupt(workers: Sequence[Worker]) -> None:
    """Have all break off what they do, remove what they made, and end."""
    for worker in workers:
        worker.over = True
        if worker.process.pid is not None and worker.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, signal.SIGINT)


def receive(workers: Sequence[Worker], patience_s: float) -> Iterator[tuple[Worker, object]]:
    """Messages of workers; None from one that has ended."""
    by_connection = {worker.connection: worker for worker in workers if not worker.connection.closed}
    for ready in wait(list(by_connection), patience_s):
        assert isinstance(ready, Connection)
        worker = by_connection[ready]
        try:
            yield worker, ready.recv()
        except (EOFError, OSError):
            ready.close()
            worker.over = True
            yield worker, None
