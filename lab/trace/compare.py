"""What two runs did differently: order of calls, bytes, times, phases of training steps, buckets.

Runs of different world sizes are compared by what falls to one rank: bytes and waiting are divided by the number of
ranks, and only the calls of rank 0 are aligned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from statistics import median
from typing import TypeVar

from lab.record.read import Record
from lab.trace.model import Call, Trace
from lab.trace.notation import render_call
from lab.trace.settings import Setting, settings_changed
from lab.trace.steps import Step, match
from lab.trace.traffic import operations

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
LONGEST = 4000
"""Calls of each run that are aligned; aligning takes time with the square of it."""


@dataclass(slots=True)
class Change:
    """Calls that one run made where the other made others."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    before: int
    """Position in the first run, from 0."""
    after: int
    """Position in the second run, from 0."""
    times: int = 1
    """How often the same change comes, here for the first time."""


@dataclass(frozen=True, slots=True)
class SequenceChange:
    """A change in the order of calls, and whose it is."""

    ranks: tuple[int, ...]
    change: Change
    at: str
    """Line of the script of the first call that came or, if none came, that went."""
    phase: str
    """Its phase of the training step; empty outside."""


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
    cut: bool
    """Whether the order of calls was compared only as far as it is practical."""
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
    sequence, cut = _sequence(traces, per_rank)
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
        sequence=sequence,
        cut=cut,
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


def _sequence(traces: tuple[Trace, Trace], per_rank: bool) -> tuple[list[SequenceChange], bool]:
    found: dict[tuple[object, ...], tuple[list[int], Change, Call]] = {}
    any_cut = False
    for rank in [0] if per_rank else sorted({*traces[0].ranks, *traces[1].ranks}):
        calls, texts = _calls_of(rank, traces)
        changes, cut = align(texts[0], texts[1])
        any_cut |= cut
        for change in changes:
            call = calls[1][change.after] if change.added else calls[0][change.before]
            found.setdefault(astuple(change), ([], change, call))[0].append(rank)
    changed = [SequenceChange(tuple(ranks), change, call.source, call.phase) for ranks, change, call in found.values()]
    return sorted(changed, key=lambda one: (one.change.before, one.change.after, one.ranks)), any_cut


def align(before: Sequence[str], after: Sequence[str]) -> tuple[list[Change], bool]:
    """The changes between the calls of a rank, as text, and whether there were too many to compare to their ends."""
    blocks, cut = _blocks(before, after)
    changes: dict[tuple[tuple[str, ...], tuple[str, ...]], Change] = {}
    for same, i1, i2, j1, j2 in blocks:
        if same:
            continue
        key = tuple(before[i1:i2]), tuple(after[j1:j2])
        if key in changes:
            changes[key].times += 1
        else:
            changes[key] = Change(*key, i1, j1)
    return list(changes.values()), cut


def _blocks(before: Sequence[str], after: Sequence[str]) -> tuple[list[tuple[bool, int, int, int, int]], bool]:
    """Stretches that are the same in both, and those that are not, as far as they were compared; whether that was all.

    A stretch is whether it is the same, its beginning and end in the first, its beginning and end in the second.
    """
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, second = before[start : len(before) - end], after[start : len(after) - end]
    matcher = SequenceMatcher(None, first[:LONGEST], second[:LONGEST], autojunk=False)
    between = [
        (kind == "equal", start + i1, start + i2, start + j1, start + j2)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
    ]
    last = (True, len(before) - end, len(before), len(after) - end, len(after))
    return [(True, 0, start, 0, start), *between, last], max(len(first), len(second)) > LONGEST


@dataclass(frozen=True, slots=True)
class Counterparts:
    """Which calls of two runs are the same ones."""

    pairs: list[tuple[Call, Call]]
    removed: set[tuple[int, int]]
    """Rank and index of calls that the first run alone made."""
    added: set[tuple[int, int]]
    """The same of the second run."""


def counterparts(traces: tuple[Trace, Trace]) -> Counterparts:
    """Put together what each rank called in both runs; where world sizes differ, only what rank 0 called."""
    found = Counterparts([], set(), set())
    per_rank = traces[0].world_size != traces[1].world_size
    for rank in [0] if per_rank else sorted({*traces[0].ranks, *traces[1].ranks}):
        calls, texts = _calls_of(rank, traces)
        for same, i1, i2, j1, j2 in _blocks(*texts)[0]:
            ours, theirs = calls[0][i1:i2], calls[1][j1:j2]
            if same:
                found.pairs.extend(zip(ours, theirs, strict=True))
            else:
                found.removed.update((rank, call.index) for call in ours)
                found.added.update((rank, call.index) for call in theirs)
    return found


def _calls_of(rank: int, traces: tuple[Trace, Trace]) -> tuple[list[list[Call]], list[list[str]]]:
    """What a rank called in both runs, as calls and as text."""
    calls = [trace.ranks[rank].calls if rank in trace.ranks else [] for trace in traces]
    return calls, [[render_call(call, t.groups) for call in of] for of, t in zip(calls, traces, strict=True)]


def _figures(steps: Sequence[Step], ranks: int) -> dict[str, Figures | None]:
    return {
        row.op: Figures(row.count, row.sent / ranks, row.median_s, row.total_s, row.waited_s / ranks)
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
