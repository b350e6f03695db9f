"""The worker processes of a suite: each runs cases one after the other on a warm cluster of its own.

A worker is a session of its own: Ctrl-C at a terminal reaches the parent alone, which passes it on once. When the
parent dies, however it dies, the worker ends as if it was interrupted: the run is cancelled and its cluster removed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import NamedTuple

from lab.engine.interrupts import interruptible
from lab.errors import EngineUnavailable, LabError, MachineLacks, unforeseen
from lab.features.suite.cases import Attempt
from lab.plan.cluster import ClusterInfo, Shape
from lab.record.result import Result
from lab.run.collect import Observer
from lab.run.lock import ClusterLock
from lab.run.options import RunOptions
from lab.run.place import Place, Several, refuse_foreign_wishes
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


class Making(NamedTuple):
    """From a worker: it makes its cluster."""


class Begun(NamedTuple):
    """From a worker: the run begins."""

    made_s: float | None
    """Seconds that making its cluster took; None: it was there."""


class Told(NamedTuple):
    """From a worker: a line of progress."""

    text: str


class Ended(NamedTuple):
    """From a worker: what came of the run."""

    attempt: Attempt
    lacking: bool = False
    """Whether it could not begin because this machine lacks what it needs."""
    no_cluster: bool = False
    """Whether it could not begin because its cluster could not be made."""
    last: bool = False
    """Whether the rest is not wanted after this, or cannot be had."""


class Refused(NamedTuple):
    """From a worker: it cannot work, and ends."""

    message: str
    hint: str
    exit_code: int


# -- in the process of a worker


def work(
    place: Place, suite: str, stays: bool, connection: Connection, parent_lives: int, foreign: Sequence[int]
) -> None:
    """Run tasks until there are no more.

    Args:
        place: where its cluster is, or is made.
        suite: what a cluster is made for, and removed after.
        stays: whether the cluster of that name is there, and stays.
        connection: to the parent.
        parent_lives: a descriptor that ends when the parent does.
        foreign: descriptors of the parent's that are open here too, and must not be.
    """
    for descriptor in foreign:
        os.close(descriptor)
    tasks = _Tasks(place, suite, connection, stays=stays)
    for number in _INTERRUPTS:
        if signal.getsignal(number) is signal.SIG_IGN:  # as a shell has it for what it starts in the background
            signal.signal(number, signal.SIG_DFL)
    with interruptible():
        try:
            _live_as_long_as(parent_lives)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
            tasks.run_all()
        except (KeyboardInterrupt, EOFError, ConnectionError):  # the latter two: the parent listens no more
            pass
        except Exception as error:  # noqa: BLE001  # its parent tells it
            told = error if isinstance(error, LabError) else unforeseen(error)
            tasks.send(Refused(told.message, told.hint, told.exit_code))


def _live_as_long_as(parent_lives: int) -> None:
    """Be interrupted when the parent dies."""
    os.setsid()
    main = threading.get_ident()

    def watch() -> None:
        os.read(parent_lives, 1)
        signal.pthread_kill(main, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class _Tasks(Observer):
    """Runs tasks on the cluster of a worker, and passes on what runs say of their progress."""

    def __init__(self, place: Place, suite: str, connection: Connection, *, stays: bool) -> None:
        self._place = replace(place, announce=self.progress)
        self._suite = suite
        self._connection = connection
        self._stays = stays

    def send(self, message: object) -> None:
        """Send something to the parent, if it lives."""
        with suppress(OSError):
            self._connection.send(message)

    def progress(self, text: str) -> None:
        """A line of progress."""
        self.send(Told(text))

    def run_all(self) -> None:
        """Run tasks until there are no more, or none that can be done.

        Raises:
            LabError: the cluster that is there cannot be had.
        """
        task: Task | None = self._connection.recv()
        if task is None:
            return
        lock = ClusterLock(self._place.engine.name, self._place.name)
        with lock.held(f"suite {self._suite}", task.options.wait_s):
            if self._stays:
                there = self._place.usable(lock, remake=True)
                self._run_alike(there or self._place.make(task.shape, None), task)
                return
            while task is not None:
                task = self._run_alike(None, task)

    def _run_alike(self, cluster: ClusterInfo | None, task: Task | None) -> Task | None:
        """Run tasks that can share one cluster; returns the first that needs another."""
        assert task is not None
        shape = task.shape
        several = Several(place=self._place, cluster=cluster, made_for=None if self._stays else self._suite)
        try:
            while task is not None and task.shape == shape:
                ended = self._run(several, task)
                self.send(ended)
                task = None if ended.last else self._connection.recv()
            return task
        finally:
            several.end()

    def _run(self, several: Several, task: Task) -> Ended:
        """One run; what keeps it from beginning is its outcome."""
        began, making, made_s = time.monotonic(), False, None
        try:
            refuse_foreign_wishes(task.scenario, self._place.engine, self._place.asked, task.options)
            if several.cluster is None:
                making = True
                self.send(Making())
                several.ready(lambda: task.shape)
                making, made_s = False, time.monotonic() - began
                began = time.monotonic()
            self.send(Begun(made_s))
            outcome = several.outcome(task.scenario, task.options, self, lambda: task.shape)
            last = several.ends_with(outcome)
        except LabError as error:
            outcome = error
            last = isinstance(error, EngineUnavailable) and self._place.engine_is_gone()
        took_s = time.monotonic() - began
        if isinstance(outcome, Result):
            return Ended(Attempt(result=outcome, took_s=took_s), last=last)
        name, reason, code = task.scenario.name, outcome.message, outcome.exit_code
        result = Result(verdict="error", reason=reason, scenario=name, exit_code=code, duration_s=None)
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


class WorkerPool:
    """Workers, each with a place of its own, begun before there are threads; at its end, all have ended."""

    def __init__(self, places: Sequence[Place], suite: str, *, stays: bool) -> None:
        self._dies, self._lives = os.pipe()
        self.workers: list[Worker] = []
        context = get_context("fork")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        try:
            for number, place in enumerate(places, start=1):
                mine, its = context.Pipe()
                foreign = [self._lives, mine.fileno(), *(worker.connection.fileno() for worker in self.workers)]
                arguments = (place, suite, stays, its, self._dies, foreign)
                process = context.Process(target=work, args=arguments, name=f"suite worker {number}")
                process.start()
                its.close()
                self.workers.append(Worker(number, process, mine))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all have ended; whoever does not is killed."""
        if kind is not None:
            self.interrupt()
        for worker in self.workers:
            worker.dismiss()
            worker.connection.close()  # whoever still says something is not heard, and must not wait for that
        end = time.monotonic() + LAST_PATIENCE_S
        for worker in self.workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        for descriptor in (self._lives, self._dies):
            with suppress(OSError):
                os.close(descriptor)

    def receive(self, patience_s: float) -> list[tuple[Worker, object]]:
        """Messages of workers; None from one that has ended."""
        by_connection = {worker.connection: worker for worker in self.workers if not worker.connection.closed}
        messages: list[tuple[Worker, object]] = []
        for ready in wait(list(by_connection), patience_s):
            assert isinstance(ready, Connection)
            worker = by_connection[ready]
            try:
                messages.append((worker, ready.recv()))
            except (EOFError, OSError):
                ready.close()
                worker.over = True
                messages.append((worker, None))
        return messages

    def interrupt(self) -> None:
        """Have all break off what they do, remove what they made, and end."""
        for worker in self.workers:
            worker.over = True
            if worker.process.pid is not None and worker.process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
