"""Compare runs with earlier ones of the same scenarios: slower times, more traffic, and different calls.

Calls and bytes depend on the program only, so one run on each side is enough. Times vary. A scenario is slower only if
three runs on each side do not overlap. With fewer runs it is perhaps slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import Any, Literal, NamedTuple

from lab.features.calls.changes import Calls
from lab.features.calls.snapshot import changes_of, texts_of
from lab.features.traffic.traffic import summarize_operations
from lab.frozen import Frozen
from lab.record.read import Record, RecordedPlan
from lab.trace.model import Trace
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from lab.words import group_pairs

ENOUGH = 3
"""Runs on each side for a statement about times: by chance, three are above three others once in 20 times."""
_LEAST_S = 0.02
_MOST_TRACES = 3
_MOST_TIMES = 30
_NOT_TRACED = "calls are not compared: a run has no trace"
Speed = Literal["", "slower", "perhaps slower"]


class Key(NamedTuple):
    """What makes two runs belong to the same case."""

    scenario: str
    nnodes: int
    nproc_per_node: int
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, plan: RecordedPlan) -> Key:
        """Return the key of a run."""
        arguments = tuple(plan.workers[0].argv[1:]) if plan.workers else ()
        return cls(plan.scenario, plan.nnodes or 1, plan.nproc_per_node or 1, arguments)

    @property
    def name(self) -> str:
        """`scatter on 3 x 1`, with its arguments."""
        arguments = f" {' '.join(self.arguments)}" if self.arguments else ""
        return f"{self.scenario}{arguments} on {self.nnodes} x {self.nproc_per_node}"


@dataclass(frozen=True)
class Run:
    """One run, read on demand."""

    record: Record

    @cached_property
    def plan(self) -> RecordedPlan:
        """The plan of the run."""
        return self.record.plan()

    @cached_property
    def duration_s(self) -> float | None:
        """Duration in seconds; None if unknown or meaningless."""
        return None if self.plan.stepped else self.record.result().duration_s

    @property
    def conditions(self) -> tuple[str, bool]:
        """Conditions that runs with comparable times share."""
        return self.plan.engine, bool(self.plan.cold)

    @cached_property
    def calls(self) -> Calls:
        """The calls; empty without a trace."""
        return texts_of(self._trace) if self._trace.recorded else {}

    @cached_property
    def sent(self) -> Mapping[str, tuple[int, int]]:
        """By operation: number of steps and logical bytes."""
        return {row.op: (row.count, row.sent or 0) for row in summarize_operations(match_steps(self._trace))}

    def changes(self, before: Calls, than: str) -> tuple[str, ...]:
        """Return how calls differ from earlier ones, one sentence each."""
        return tuple(one.text for one in changes_of(self._trace, before, than))

    @cached_property
    def _trace(self) -> Trace:
        return read_trace(self.record)


class Increase(Frozen):
    """An operation that is called more often than before, or sends more."""

    op: str
    calls: tuple[int, int]
    """Before and now."""
    bytes: tuple[int, int]


class CaseChange(Frozen):
    """How a case differs from before."""

    name: str
    runs: tuple[tuple[str, ...], tuple[str, ...]]
    """Names of the runs before and now."""
    times_s: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    """Durations of comparable runs, sorted."""
    speed: Speed = ""
    increases: tuple[Increase, ...] = ()
    calls: tuple[str, ...] = ()
    """How calls differ, one sentence each."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""

    @property
    def worse(self) -> bool:
        """Whether it certainly is slower, sends more, or makes other calls."""
        return self.speed == "slower" or bool(self.increases or self.calls)

    @property
    def changed(self) -> bool:
        """Whether there is anything to report."""
        return self.worse or bool(self.speed or self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        data = asdict(self)
        return {**data, "more": data.pop("increases"), "worse": self.worse}


class Baseline(Frozen):
    """Many cases, compared with earlier runs."""

    name: str
    """Name of the earlier runs, as requested."""
    cases: tuple[CaseChange, ...]
    """Cases that ran before and now."""
    new: tuple[str, ...]
    """Cases that have no earlier run."""

    @property
    def exit_code(self) -> int:
        """1 if anything is worse."""
        return int(any(case.worse for case in self.cases))

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        cases = [case.to_json() for case in self.cases]
        return {"kind": "baseline", "baseline": self.name, "cases": cases, "new": list(self.new)}


def compare_with_runs(before: Iterable[Record], after: Iterable[Record], name: str, tolerance: float = 0.2) -> Baseline:
    """Compare runs with earlier ones of the same scenario, size, and arguments; only passed runs count.

    Args:
        before: Earlier runs, oldest first; runs that are also in `after` are left out.
        after: Current runs.
        name: Name of the earlier runs.
        tolerance: By which part of its time a case may take longer.
    """
    now = _by_case(after)
    known = {one.record.path.resolve() for runs in now.values() for one in runs}
    then = _by_case(record for record in before if record.path.resolve() not in known)
    cases = tuple(_compared(key.name, then[key], now[key], tolerance) for key in now if key in then)
    return Baseline(name=name, cases=cases, new=tuple(key.name for key in now if key not in then))


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(one.record.run for one in runs)


def _by_case(records: Iterable[Record]) -> dict[Key, list[Run]]:
    runs = (Run(record) for record in records if record.result().passed)
    return group_pairs((Key.of(run.plan), run) for run in runs)


def _compared(name: str, before: Sequence[Run], after: Sequence[Run], tolerance: float) -> CaseChange:
    times_s = _times(before, after[-1].conditions), _times(after, after[-1].conditions)
    notes, increases, calls = list[str](), tuple[Increase, ...](), tuple[str, ...]()
    if not times_s[0] and any(one.duration_s for one in before):
        notes.append("times are not compared: the engines differ, or only one side has cold runs")
    then, now = ([one for one in runs[-_MOST_TRACES:] if one.calls] for runs in (before, after))
    if not then or not now:
        notes.append(_NOT_TRACED)
    else:
        increases = _find_increases(then, now)
        if not any(one.calls == other.calls for one in then for other in now):
            if any(one.calls != of[-1].calls for of in (then, now) for one in of):
                notes.append("its calls vary from run to run, so they are not compared")
            else:
                calls = now[-1].changes(then[-1].calls, "the earlier run")
    runs, speed = (_names(before), _names(after)), speed_of(*times_s, tolerance)
    return CaseChange(
        name=name, runs=runs, times_s=times_s, speed=speed, increases=increases, calls=calls, notes=tuple(notes)
    )


def _times(runs: Sequence[Run], conditions: tuple[str, bool]) -> tuple[float, ...]:
    alike = [one.duration_s for one in runs if one.conditions == conditions]
    return tuple(sorted(seconds for seconds in alike[-_MOST_TIMES:] if seconds is not None))


def speed_of(before: Sequence[float], after: Sequence[float], tolerance: float) -> Speed:
    """Return whether times are longer than before; with fewer than three on a side only perhaps.

    Slower means: the median is longer by more than the tolerance, and the ranges between the quartiles do not overlap.
    The quartiles of three times are the shortest and the longest.
    """
    if not before or not after:
        return ""
    longer_s = median(after) - median(before)
    if longer_s < _LEAST_S or longer_s <= tolerance * median(before):
        return ""
    if min(len(before), len(after)) < ENOUGH:
        return "perhaps slower"
    return "slower" if quantiles(after)[0] > quantiles(before)[-1] else "perhaps slower"


def _find_increases(before: Sequence[Run], after: Sequence[Run]) -> tuple[Increase, ...]:
    """Return operations for which each current run has more calls or bytes than all earlier ones."""
    increases = []
    for op in dict.fromkeys(op for one in after for op in one.sent):
        most = [*map(max, zip(*(one.sent.get(op, (0, 0)) for one in before), strict=True))]
        least = [*map(min, zip(*(one.sent.get(op, (0, 0)) for one in after), strict=True))]
        if least[0] > most[0] or least[1] > most[1]:
            increases.append(Increase(op=op, calls=(most[0], least[0]), bytes=(most[1], least[1])))
    return tuple(increases)
