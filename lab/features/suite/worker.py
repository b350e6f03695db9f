"""The worker processes of a suite: each runs cases one after the other on a warm cluster of its own."""

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
from lab.features.suite.outcome import Attempt
from lab.plan.cluster import ClusterInfo, Shape
from lab.record.result import Result
from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place, refuse_foreign_wishes
from lab.run.pool import Several
from lab.spec.scenario import Scenario


class Task(NamedTuple):
    """One run for a worker."""

    scenario: Scenario
    options: RunOptions
    shape: Shape
    """What its cluster has to be; one in this shape is made in the place of one that is not."""


class Making(NamedTuple):
    """The worker makes its cluster."""


class Made(NamedTuple):
    """It is there."""

    took_s: float


class Begun(NamedTuple):
    """The run begins."""


class Told(NamedTuple):
    """A line of progress."""

    text: str


class Ended(NamedTuple):
    """What came of the run."""

    attempt: Attempt
    lacking: bool = False
    """Whether it could not begin because this machine lacks what it needs."""
    no_cluster: bool = False
    """Whether it could not begin because its cluster could not be made."""
    last: bool = False
    """Whether the rest is not wanted after this, or cannot be had."""


class Refused(NamedTuple):
    """The worker cannot work, and ends."""

    message: str
    hint: str
    exit_code: int


Word = Making | Made | Begun | Told | Ended | Refused


INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a worker; its parent blocks them while it begins one."""


def work(
    place: Place, suite: str, stays: bool, connection: Connection, parent_lives: int, foreign: Sequence[int]
) -> None:
    """What the process of a worker does: take tasks until there are no more.

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
    worker = Worker(place, suite, connection, stays=stays)
    for number in INTERRUPTS:
        if signal.getsignal(number) is signal.SIG_IGN:  # as a shell has it for what it starts in the background
            signal.signal(number, signal.SIG_DFL)
    with interruptible():
        try:
            _live_as_long_as(parent_lives)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
            worker.serve()
        except (KeyboardInterrupt, EOFError, ConnectionError):  # the latter two: the parent listens no more
            pass
        except Exception as error:  # noqa: BLE001  # its parent tells it
            told = error if isinstance(error, LabError) else unforeseen(error)
            worker.tell(Refused(told.message, told.hint, told.exit_code))


def _live_as_long_as(parent_lives: int) -> None:
    """Be interrupted when the parent dies."""
    os.setsid()
    main = threading.get_ident()

    def watch() -> None:
        os.read(parent_lives, 1)
        signal.pthread_kill(main, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class Worker:
    """Runs tasks on its cluster, see `work`."""

    def __init__(self, place: Place, suite: str, connection: Connection, *, stays: bool) -> None:
        self._place = replace(place, announce=lambda text: self.tell(Told(text)))
        self._suite = suite
        self._connection = connection
        self._stays = stays

    def tell(self, word: Word) -> None:
        """Say something to the parent, if it lives."""
        with suppress(OSError):
            self._connection.send(word)

    def serve(self) -> None:
        """Take tasks until there are no more, or none that can be done.

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
                self._serve_on(there or self._place.make(task.shape, None), task)
                return
            while task is not None:
                task = self._serve_on(None, task)

    def _serve_on(self, cluster: ClusterInfo | None, task: Task) -> Task | None:
        """Do tasks that can share one cluster; returns the first that needs another."""
        shape = task.shape
        several = Several(place=self._place, cluster=cluster, made_for=None if self._stays else self._suite)
        try:
            while task.shape == shape:
                ended = self._run(several, task)
                self.tell(ended)
                if ended.last:
                    return None
                following: Task | None = self._connection.recv()
                if following is None:
                    return None
                task = following
            return task
        finally:
            several.end()

    def _run(self, several: Several, task: Task) -> Ended:
        """One run; what keeps it from beginning is its outcome."""
        began = time.monotonic()
        making = False
        try:
            refuse_foreign_wishes(task.scenario, self._place.engine, self._place.asked, task.options)
            if several.cluster is None:
                making = True
                self.tell(Making())
                several.ready(lambda: task.shape)
                making = False
                self.tell(Made(time.monotonic() - began))
                began = time.monotonic()
            self.tell(Begun())
            outcome = several.outcome(task.scenario, task.options, _Telling(self), lambda: task.shape)
            last = several.ends_with(outcome)
        except LabError as error:
            outcome = error
            last = isinstance(error, EngineUnavailable) and self._place.engine_is_gone()
        took_s = time.monotonic() - began
        if isinstance(outcome, Result):
            return Ended(Attempt(result=outcome, took_s=took_s), last=last)
        kept_from = Attempt(result=_kept_from(task.scenario, outcome), hint=outcome.hint, took_s=took_s)
        return Ended(kept_from, lacking=isinstance(outcome, MachineLacks), no_cluster=making, last=last)


def _kept_from(scenario: Scenario, error: LabError) -> Result:
    """The result of a run that could not begin."""
    return Result(
        verdict="error", reason=error.message, scenario=scenario.name, exit_code=error.exit_code, duration_s=None
    )


class _Telling(Observer):
    """Passes on what a run says of its progress."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def progress(self, text: str) -> None:
        """A line of it."""
        self._worker.tell(Told(text))


LAST_PATIENCE_S = 60.0
"""How long a worker may take to remove what it made, before it is killed; the next command removes the rest."""


@dataclass
class Hand:
    """One worker process."""

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

    def give(self, task: Task, case: int) -> None:
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


class Hands:
    """Some workers, each with a place of its own; as a context manager, all have ended at its end."""

    def __init__(self, places: Sequence[Place], suite: str, *, stays: bool) -> None:
        self._dies, self._lives = os.pipe()
        self.all: list[Hand] = []
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            for place in places:
                self.all.append(self._begin(place, suite, stays))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _begin(self, place: Place, suite: str, stays: bool) -> Hand:
        context, number = get_context("fork"), len(self.all) + 1
        mine, its = context.Pipe()
        foreign = [self._lives, mine.fileno(), *(hand.connection.fileno() for hand in self.all)]
        process = context.Process(
            target=work, args=(place, suite, stays, its, self._dies, foreign), name=f"suite worker {number}"
        )
        process.start()
        its.close()
        return Hand(number, process, mine)

    def __enter__(self) -> Hands:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.interrupt()
        self.end()

    def heard(self, patience_s: float) -> list[tuple[Hand, Word | None]]:
        """What workers have said meanwhile; None from one that has ended."""
        by_connection = {hand.connection: hand for hand in self.all if not hand.connection.closed}
        found: list[tuple[Hand, Word | None]] = []
        for ready in wait(list(by_connection), patience_s):
            assert isinstance(ready, Connection)
            hand = by_connection[ready]
            try:
                found.append((hand, ready.recv()))
            except (EOFError, OSError):
                ready.close()
                hand.over = True
                found.append((hand, None))
        return found

    def interrupt(self) -> None:
        """Have all break off what they do, remove what they made, and end."""
        for hand in self.all:
            hand.over = True
            if hand.process.pid is not None and hand.process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(hand.process.pid, signal.SIGINT)

    def end(self) -> None:
        """Wait until all have ended; whoever does not is killed."""
        for hand in self.all:
            hand.dismiss()
            hand.connection.close()  # whoever still says something is not heard, and must not wait for that
        end = time.monotonic() + LAST_PATIENCE_S
        for hand in self.all:
            hand.process.join(max(0.0, end - time.monotonic()))
            if hand.process.is_alive():
                hand.process.kill()
                hand.process.join()
        for descriptor in (self._lives, self._dies):
            with suppress(OSError):
                os.close(descriptor)
