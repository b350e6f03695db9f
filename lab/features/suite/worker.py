"""A process that runs cases one after the other on a warm cluster of its own, and tells its parent what came of each.

It is a session of its own: Ctrl-C at a terminal reaches the parent alone, which passes it on once. When the parent
dies, however it dies, the worker ends as if it was interrupted: the run is cancelled and its cluster removed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lab.engine.interrupts import interruptible
from lab.errors import EngineUnavailable, LabError, MachineLacks, unforeseen
from lab.features.suite.messages import Begun, Ended, Made, Making, Refused, Task, Told, Word
from lab.features.suite.outcome import Attempt
from lab.plan.cluster import ClusterInfo
from lab.record.result import Result
from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.place import Place, refuse_foreign_wishes
from lab.run.pool import Several
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


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
