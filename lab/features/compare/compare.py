"""What two runs did differently: order of calls, bytes, times, phases of training steps, buckets.

Runs of different world sizes are compared by what falls to one rank: bytes and waiting are divided by the number of
ranks, and only the calls of rank 0 are aligned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

from lab.features.compare.sequence import SequenceChange, sequence_changes
from lab.features.compare.settings import Setting, settings_changed
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.steps import Step, match
from lab.trace.traffic import operations

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figures:
    """One operation in one run, in numbers."""

    count: int
    """Steps."""
    bytes: float
    """Logical bytes sent, by all ranks together; by one rank on average, where world sizes differ."""
    median_s: float | None
    total_s: float
    """Seconds from the entry of the last rank to the end of the last, summed over the steps."""
    waited_s: float
    """Seconds inside before those had entered who were needed, all ranks together or one on average, as `bytes`."""


@dataclass(frozen=True, slots=True)
class OpChange:
    """An operation in both runs; None where a run has none of it."""

    op: str
    before: Figures | None
    after: Figures | None


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A phase of training steps in both runs: how often a rank went through it, and how long it took."""

    name: str
    """A mark, or `training step`: from one backward pass to the next."""
    before: tuple[float, float | None]
    """Times a rank went through it on average; median seconds."""
    after: tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """Seconds that a rank spent inside calls before everybody whom it needed had entered: the others were late."""

    rank: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class BucketChange:
    """Bucket layouts of a DDP module that differ: elements of each bucket, in the order of reduction."""

    module: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side."""

    runs: tuple[str, str]
    world_sizes: tuple[int, int]
    calls: tuple[int, int]
    """Calls of all ranks."""
    span_s: tuple[float, float]
    """Seconds from the first line of the trace to the last."""
    settings: list[Setting]
    sequence: list[SequenceChange]
    operations: list[OpChange]
    waiting: list[WaitingChange]
    """Empty where world sizes differ."""
    phases: list[PhaseChange]
    buckets: list[BucketChange]
    problems: list[str]

    @property
    def per_rank(self) -> bool:
        """Whether figures are those of one rank on average."""
        return self.world_sizes[0] != self.world_sizes[1]

    @property
    def identical(self) -> bool:
        """Whether settings, calls, their order and their bytes are the same; times never are."""
        counts = all(
            one.before and one.after and (one.before.count, one.before.bytes) == (one.after.count, one.after.bytes)
            for one in self.operations
        )
        return counts and not (self.settings or self.sequence or self.buckets or self.per_rank)


def compare(before: Record, after: Record, traces: tuple[Trace, Trace]) -> Comparison:
    """Compare two runs, which have these traces."""
    steps = match(traces[0]), match(traces[1])
    world_sizes = traces[0].world_size, traces[1].world_size
    per_rank = world_sizes[0] != world_sizes[1]
    figures = [_figures(of, n if per_rank else 1) for of, n in zip(steps, world_sizes, strict=True)]
    phases = [_phases(trace) for trace in traces]
    buckets = _side_by_side(BucketChange, [_buckets(trace) for trace in traces], ())
    runs = before.run, after.run
    return Comparison(
        runs=runs,
        world_sizes=world_sizes,
        calls=(len(traces[0].calls), len(traces[1].calls)),
        span_s=(traces[0].last, traces[1].last),
        settings=settings_changed(before, after, traces),
        sequence=sequence_changes(traces, per_rank),
        operations=_side_by_side(OpChange, figures, None),
        waiting=[]
        if per_rank
        else sorted(_side_by_side(WaitingChange, [*map(_waiting, steps)], 0.0), key=lambda one: one.rank),
        phases=_side_by_side(PhaseChange, phases, (0.0, None)),
        buckets=sorted((one for one in buckets if one.before != one.after), key=lambda one: one.module),
        problems=[f"{run}: {problem}" for run, t in zip(runs, traces, strict=True) for problem in t.problems],
    )


def _side_by_side(make: Callable[[K, V, V], T], found: Sequence[Mapping[K, V]], nothing: V) -> list[T]:
    names = dict.fromkeys([*found[0], *found[1]])
    return [make(name, found[0].get(name, nothing), found[1].get(name, nothing)) for name in names]


def _figures(steps: Sequence[Step], ranks: int) -> dict[str, Figures | None]:
    return {
        row.op: Figures(row.count, (row.sent or 0) / ranks, row.median_s, row.total_s, row.waited_s / ranks)
        for row in operations(steps)
    }


def _waiting(steps: Sequence[Step]) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for step in steps:
        for rank, seconds in step.waited.items():
            sums[rank] += seconds
    return sums


def _phases(trace: Trace) -> dict[str, tuple[float, float | None]]:
    times: dict[str, list[float]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for rank in trace.ranks.values():
        begins = sorted(mark.begin for mark in rank.marks if mark.name == "backward")
        spans = [(mark.name, mark.begin, mark.end) for mark in rank.marks]
        for name, begin, end in [*spans, *(("training step", *both) for both in pairwise(begins))]:
            counts[name] += 1
            times[name] += [end - begin] if end is not None else []
    ranks = len(trace.ranks) or 1
    return {name: (count / ranks, median(times[name]) if times[name] else None) for name, count in counts.items()}


def _buckets(trace: Trace) -> dict[int, tuple[int, ...]]:
    """The last layout of each module, as rank 0 has it."""
    return {layout.module: layout.sizes for layout in trace.ranks[0].buckets} if 0 in trace.ranks else {}
