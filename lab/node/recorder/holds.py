"""Holds this process at the points that set faults off: its n-th call of an operation, a phase, a note.

Whoever comes to such a point tells the agent, waits until the lab lets it go on, and does what the lab has it do. Off
until it is armed, and in every fork of the process that armed it: where nothing is armed, the cost is one test.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

CALL, PHASE, NOTE = "op", "phase", "note"
"""What a point is, as the keys of a trigger name it."""
BEFORE, AFTER = "before", "after"
Tell = Callable[[int, "Point", int, Any, tuple[dict[str, Any], ...]], None]
_LONGEST_VALUE = 1000
"""Characters of a note that a trigger may be about; a longer one is no scalar of a scenario."""
_MOST_TOLD = 256
"""Of so many tensors it is told what they are; no call of a test brings more."""


class Point(NamedTuple):
    """Where a fault is set off, or healed."""

    trigger: int
    """Index of the fault in the plan."""
    heals: bool
    nth: int
    """The how-manieth of its name; 0: each."""
    edge: str


class Holds:
    """The points of this process."""

    def __init__(self) -> None:
        self.armed = False
        """Whether there is any point."""
        self._tell: Tell = lambda *_: None
        self._rank = -1
        self._fd = -1
        self._rest = b""
        self._said: dict[int, Mapping[str, Any]] = {}
        self._points: dict[tuple[str, str], list[Point]] = {}
        self._counts: dict[tuple[str, str], Callable[[], int]] = {}
        self._holds = itertools.count(1)
        self._lock = threading.RLock()  # a handler of a signal may come to a point while its thread is held at another

    def arm(self, triggers: Iterable[Mapping[str, Any]], fd: int, rank: int, tell: Tell) -> None:
        """Hold at these points from now on.

        Args:
            triggers: as `WorkerStart` has them.
            fd: where the agent says who may go on, and what is to be done before.
            tell: sends the agent the number of a hold, its point, the how-manieth of its name, the value of a note, and
                what tensors a call brings.
        """
        for trigger in triggers:
            if trigger.get("sidecar"):  # no point
                continue
            what = next(what for what in (CALL, PHASE, NOTE) if trigger.get(what))
            nth = 0 if what == NOTE else int(trigger.get("count", 1))
            point = Point(int(trigger["trigger"]), bool(trigger.get("heals")), nth, trigger.get("edge", BEFORE))
            self._points.setdefault((what, trigger[what]), []).append(point)
            self._counts.setdefault((what, trigger[what]), functools.partial(next, itertools.count(1)))
        self._fd, self._rank, self._tell, self.armed = fd, rank, tell, bool(self._points)

    def forget(self) -> None:
        """Hold nothing any more: nobody is there to say who may go on, or this is a fork."""
        self.armed, self._points, self._fd = False, {}, -1

    def forked(self) -> None:
        """This is a fork of the process that was armed; a thread that it does not have may have the lock."""
        self.forget()
        self._lock = threading.RLock()

    def points(self, what: str) -> dict[str, list[Point]]:
        """All points that are calls, or phases, or notes, by name."""
        return {name: points for (kind, name), points in self._points.items() if kind == what}

    def count_calls_by(self, count: Callable[[str], int]) -> None:
        """Have calls counted elsewhere."""
        for what, name in self._points:
            if what == CALL:
                self._counts[what, name] = functools.partial(count, name)

    def count(self, what: str, name: str) -> int:
        """The how-manieth of this name now begins, from 1; 0 where none of this name is watched."""
        count = self._counts.get((what, name)) if self.armed else None
        return 0 if count is None else count()

    def edges(self, what: str, name: str, nth: int) -> set[str]:
        """The edges at which this one is held."""
        return {point.edge for point in self._points.get((what, name), ()) if point.nth in (0, nth)}

    def reach(
        self, what: str, name: str, nth: int, edge: str, *, value: Any = None, tensors: Sequence[Any] = ()
    ) -> None:
        """Wait here where a trigger says so, then do what the lab says.

        Args:
            value: what is noted.
            tensors: what the call brings, or what it left; may be changed.

        Raises:
            BaseException: the lab has it raise that.
        """
        for point in self._points.get((what, name), ()):
            if point.nth in (0, nth) and point.edge == edge:
                _do(self._hold(point, nth, value, tensors), tensors, self._rank)

    def begin_phase(self, name: str) -> int:
        """A phase is about to begin; returns its number among those of its name, 0 where none of them is watched."""
        nth = self.count(PHASE, name)
        if nth:
            self.reach(PHASE, name, nth, BEFORE)
        return nth

    def end_phase(self, name: str, nth: int) -> None:
        """The phase that had this number has just ended."""
        if nth:
            self.reach(PHASE, name, nth, AFTER)

    def noted(self, name: str, value: Any) -> None:
        """Something has been noted."""
        nth = self.count(NOTE, name)
        if nth:
            self.reach(NOTE, name, nth, BEFORE, value=value)

    def _hold(self, point: Point, nth: int, value: Any, tensors: Sequence[Any]) -> Mapping[str, Any]:
        with self._lock:
            hold = next(self._holds)
            if self.armed:
                try:
                    self._tell(hold, point, nth, _scalar(value), brought(tensors))
                except OSError:  # the agent has gone
                    self.forget()
            while hold not in self._said and self.armed:
                self._listen()
            return self._said.pop(hold, {})

    def _listen(self) -> None:
        try:
            piece = os.read(self._fd, 4096)
        except OSError:  # the script has closed it
            piece = b""
        if not piece:
            self.forget()
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            with suppress(ValueError, TypeError, KeyError):
                said = json.loads(line)
                self._said[int(said["hold"])] = dict(said["deed"])


def _scalar(value: Any) -> Any:
    """What a scenario can compare a note with; None for everything else."""
    small = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _LONGEST_VALUE)
    return value if small else None


def arm(triggers: Iterable[Mapping[str, Any]], fd: int, rank: int, socket_path: str) -> None:
    """Arm the holds of this process, which tell the agent by its socket for notes."""
    from ..messages.agent import Reached
    from ..rank import note

    def tell(hold: int, point: Point, nth: int, value: Any, brought: tuple[dict[str, Any], ...]) -> None:
        note.send(socket_path, Reached(rank, time.time(), hold, point.trigger, point.heals, nth, value, brought))

    holds.arm(triggers, fd, rank, tell)
    if holds.points(NOTE):
        note.then(holds.noted)


holds = Holds()
"""Those of this process."""
os.register_at_fork(after_in_child=holds.forked)


def brought(tensors: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """What tensors a call brings, as `Reached` tells it."""
    return tuple(
        {
            "elements": tensor.numel(),
            "dtype": str(tensor.dtype).partition(".")[2],
            "bits": tensor.element_size() * (4 if tensor.is_complex() else 8),
        }
        for tensor in tensors[:_MOST_TOLD]
    )


def _do(deed: Mapping[str, Any], tensors: Sequence[Any], rank: int) -> None:
    """Do to this process what the lab says; mostly that is nothing."""
    if deed:
        import_module("...features.faults.on_node.own_deeds", __package__).do(deed, tensors, rank)
