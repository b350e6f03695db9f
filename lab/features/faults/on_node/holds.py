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
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ....node.messages.agent import Reached
from ....node.rank import note
from ....node.recorder import marks
from . import own_deeds

CALL, PHASE, NOTE = "op", "phase", "note"
"""What a point is, as the keys of a trigger name it."""
BEFORE, AFTER = "before", "after"
Report = Callable[[int, "Point", int, Any, tuple[dict[str, Any], ...]], None]
_LONGEST_VALUE = 1000
"""Characters of a note that a trigger may be about; a longer one is no scalar of a scenario."""
_MOST_TENSORS = 256
"""Of so many tensors the lab learns what they are; no call of a test brings more."""


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
        self._report: Report = lambda *_: None
        self._rank = -1
        self._fd = -1
        self._rest = b""
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._points: dict[tuple[str, str], list[Point]] = {}
        self._counts: dict[tuple[str, str], Callable[[], int]] = {}
        self._phases: defaultdict[str, list[int]] = defaultdict(list)
        """The numbers of those that have begun, by name."""
        self._holds = itertools.count(1)
        self._lock = threading.RLock()  # a handler of a signal may come to a point while its thread is held at another

    def arm(self, triggers: Iterable[Mapping[str, Any]], fd: int, rank: int, report: Report) -> None:
        """Hold at these points from now on.

        Args:
            triggers: as `WorkerStart` has them.
            fd: where the agent says who may go on, and what is to be done before.
            rank: that of this process.
            report: sends the agent the number of a hold, its point, the how-manieth of its name, the value of a note,
                and what tensors a call brings.
        """
        for trigger in triggers:
            if trigger.get("sidecar"):  # no point
                continue
            what = next(what for what in (CALL, PHASE, NOTE) if trigger.get(what))
            nth = 0 if what == NOTE else int(trigger.get("count", 1))
            point = Point(int(trigger["trigger"]), bool(trigger.get("heals")), nth, trigger.get("edge", BEFORE))
            self._points.setdefault((what, trigger[what]), []).append(point)
            self._counts.setdefault((what, trigger[what]), functools.partial(next, itertools.count(1)))
        self._fd, self._rank, self._report, self.armed = fd, rank, report, bool(self._points)

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
        for name in self.points(CALL):
            self._counts[CALL, name] = functools.partial(count, name)

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
            what: the kind of the point.
            name: of the operation, phase or note.
            nth: the how-manieth of its name.
            edge: before it, or after.
            value: what is noted.
            tensors: what the call brings, or what it left; may be changed.

        Raises:
            BaseException: the lab has it raise that.
        """
        for point in self._points.get((what, name), ()):
            if point.nth in (0, nth) and point.edge == edge:
                own_deeds.do(self._hold(point, nth, value, tensors), tensors, self._rank)

    def begin_phase(self, name: str) -> None:
        """A phase is about to begin."""
        nth = self.count(PHASE, name)
        if nth:
            self.reach(PHASE, name, nth, BEFORE)
        self._phases[name].append(nth)

    def end_phase(self, name: str) -> None:
        """The phase of this name that began last has just ended."""
        nth = self._phases[name].pop() if self._phases[name] else 0
        if nth:
            self.reach(PHASE, name, nth, AFTER)

    def noted(self, name: str, value: Any) -> None:
        """Something has been noted."""
        nth = self.count(NOTE, name)
        if nth:
            self.reach(NOTE, name, nth, BEFORE, value=value)

    def hold_calls(self, kind: Any) -> None:
        """Have those methods of a class of groups held whose calls are watched; the others stay as they are."""
        from ....node.recorder.python_group import OPERATIONS

        for op in self.points(CALL):
            for method in OPERATIONS.get(op, ()):
                if hasattr(kind, method):
                    setattr(kind, method, self._held(op, getattr(kind, method)))

    def _held(self, op: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(group: Any, *arguments: Any, **named: Any) -> Any:
            nth = self.count(CALL, op)
            edges = self.edges(CALL, op, nth) if nth else ()
            if not edges:
                return method(group, *arguments, **named)
            inputs, results = _tensors(op, (*arguments, *named.values()))
            self.reach(CALL, op, nth, BEFORE, tensors=inputs)
            if AFTER not in edges:
                return method(group, *arguments, **named)
            try:
                work = method(group, *arguments, **named)
                if work is not None:
                    with suppress(Exception):  # whoever waits for it next learns of that
                        _wait_ahead(work)
            finally:
                self.reach(CALL, op, nth, AFTER, tensors=results)
            return work

        return wrapper

    def _hold(self, point: Point, nth: int, value: Any, tensors: Sequence[Any]) -> Mapping[str, Any]:
        with self._lock:
            hold = next(self._holds)
            if self.armed:
                try:
                    self._report(hold, point, nth, _scalar(value), brought(tensors))
                except OSError:  # the agent has gone
                    self.forget()
            while hold not in self._answers and self.armed:
                self._receive()
            return self._answers.pop(hold, {})

    def _receive(self) -> None:
        try:
            piece = os.read(self._fd, 4096)
        except OSError:  # the script has closed it
            piece = b""
        if not piece:
            self.forget()
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            with suppress(ValueError, TypeError, KeyError):
                answer = json.loads(line)
                self._answers[int(answer["hold"])] = dict(answer["deed"])


def _scalar(value: Any) -> Any:
    """What a scenario can compare a note with; None for everything else."""
    small = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _LONGEST_VALUE)
    return value if small else None


def brought(tensors: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """What tensors a call brings, as `Reached` has it."""
    return tuple(
        {
            "elements": tensor.numel(),
            "dtype": str(tensor.dtype).partition(".")[2],
            "bits": tensor.element_size() * (4 if tensor.is_complex() else 8),
        }
        for tensor in tensors[:_MOST_TENSORS]
    )


def _wait_ahead(work: Any) -> None:
    result, failure = None, None
    try:
        result = work.wait()
    except Exception as error:
        failure = error
        raise
    finally:
        if hasattr(work, "ahead"):  # it is recorded, and may not be waited for again
            work.ahead = result, failure


def _tensors(op: str, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """The tensors that a call takes, and those that it fills."""
    from ....node.recorder.python_group import describe

    try:
        _, inputs, outputs = describe(op, given)
    except Exception:  # arguments that nobody thought of
        return (), ()
    return inputs or (), (inputs if outputs is None else outputs) or ()


holds = Holds()
"""Those of this process."""
os.register_at_fork(after_in_child=holds.forked)


def arm(spec: Mapping[str, Any]) -> None:
    """Arm the holds of a worker, which reports to the agent by its socket for notes."""
    if spec.get("hold_fd") is None:
        return
    rank = spec["rank"]

    def report(hold: int, point: Point, nth: int, value: Any, tensors: tuple[dict[str, Any], ...]) -> None:
        reached = Reached(rank, time.time(), hold, point.trigger, point.heals, nth, value, tensors)
        note.send(spec["note_socket"], reached)

    holds.arm(spec["triggers"], spec["hold_fd"], rank, report)
    marks.watch_phases(holds.points(PHASE), holds.begin_phase, holds.end_phase)


def noted(name: str, value: Any) -> None:
    """Something has been noted."""
    holds.noted(name, value)


def hold_compiled_calls(compiled: Any) -> None:
    """Have the compiled recorder, if there is one, count the calls that triggers watch, and hold them."""
    points = holds.points(CALL)
    if compiled is not None and points:
        compiled.hold(
            functools.partial(holds.reach, CALL),
            {op: [(point.nth, point.edge == AFTER) for point in points[op]] for op in points},
        )
        holds.count_calls_by(compiled.count)


def hold_python_calls(kind: Any) -> None:
    """Have the watched calls of a class of groups held that Python records."""
    holds.hold_calls(kind)
