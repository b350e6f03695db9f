"""The worker processes of a suite, as their parent has them: begun before it has threads, and never left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

from lab.features.suite.messages import Task, Word
from lab.features.suite.worker import INTERRUPTS, work
from lab.plan.cluster import Shape
from lab.run.place import Place

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
