"""What two runs did differently: order of calls, bytes, times, phases of training steps, buckets.

Runs of different world sizes are compared by what falls to one rank: bytes and waiting are divided by the number of
ranks, and only the calls of rank 0 are aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from lab.record.read import Record
from lab.trace.alignment import Change, align
from lab.trace.model import Mark, Trace
from lab.trace.notation import render_call
from lab.trace.settings import Setting, settings_changed
from lab.trace.steps import Step, match
from lab.trace.traffic import OpRow, operations


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
    """What one operation came to in one run."""

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
    """Seconds that a rank spent inside calls before those had entered whom it needed: it is they who were late."""

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
    """Compare two runs.

    Args:
        before: the first run.
        after: the second run.
        traces: their traces.
    """
    steps = match(traces[0]), match(traces[1])
    per_rank = traces[0].world_size != traces[1].world_size
    sequence, cut = _sequence(traces, per_rank)
    return Comparison(
        runs=(before.run, after.run),
        world_sizes=(traces[0].world_size, traces[1].world_size),
        calls=(len(traces[0].calls), len(traces[1].calls)),
        span_s=(traces[0].last, traces[1].last),
        settings=settings_changed(before, after, traces),
        sequence=sequence,
        cut=cut,
        operations=_operations(steps, (traces[0].world_size, traces[1].world_size) if per_rank else (1, 1)),
        waiting=[] if per_rank else _waiting(steps),
        phases=_phases(traces),
        buckets=_buckets(traces),
        problems=[
            f"{run.run}: {problem}" for run, t in zip((before, after), traces, strict=True) for problem in t.problems
        ],
    )


def _sequence(traces: tuple[Trace, Trace], per_rank: bool) -> tuple[list[SequenceChange], bool]:
    found: dict[tuple[object, ...], tuple[list[int], SequenceChange]] = {}
    any_cut = False
    for rank in [0] if per_rank else sorted({*traces[0].ranks, *traces[1].ranks}):
        calls = [trace.ranks[rank].calls if rank in trace.ranks else [] for trace in traces]
        texts = [[render_call(call, t.groups) for call in of] for of, t in zip(calls, traces, strict=True)]
        changes, cut = align(texts[0], texts[1])
        any_cut |= cut
        for change in changes:
            call = calls[1][change.after] if change.added else calls[0][change.before]
            key = (change.removed, change.added, change.before, change.after, change.times)
            one = SequenceChange((), change, call.source, call.phase)
            found.setdefault(key, ([], one))[0].append(rank)
    changed = [SequenceChange(tuple(ranks), one.change, one.at, one.phase) for ranks, one in found.values()]
    return sorted(changed, key=lambda one: (one.change.before, one.change.after, one.ranks)), any_cut


def _operations(steps: tuple[Sequence[Step], Sequence[Step]], ranks: tuple[int, int]) -> list[OpChange]:
    rows = [{row.op: _figures(row, n) for row in operations(of)} for of, n in zip(steps, ranks, strict=True)]
    names = dict.fromkeys([*rows[0], *rows[1]])
    return [OpChange(op, rows[0].get(op), rows[1].get(op)) for op in names]


def _figures(row: OpRow, ranks: int) -> Figures:
    return Figures(row.count, row.sent / ranks, row.median_s, row.total_s, row.waited_s / ranks)


def _waiting(steps: tuple[Sequence[Step], Sequence[Step]]) -> list[WaitingChange]:
    sums: list[dict[int, float]] = [{}, {}]
    for found, of in zip(sums, steps, strict=True):
        for step in of:
            for rank, seconds in step.waited.items():
                found[rank] = found.get(rank, 0.0) + seconds
    return [
        WaitingChange(rank, sums[0].get(rank, 0.0), sums[1].get(rank, 0.0)) for rank in sorted({*sums[0], *sums[1]})
    ]


def _phases(traces: tuple[Trace, Trace]) -> list[PhaseChange]:
    figures = [_phase_figures(trace) for trace in traces]
    names = dict.fromkeys([*figures[0], *figures[1]])
    nothing = (0.0, None)
    return [PhaseChange(name, figures[0].get(name, nothing), figures[1].get(name, nothing)) for name in names]


def _phase_figures(trace: Trace) -> dict[str, tuple[float, float | None]]:
    times: dict[str, list[float | None]] = {}
    for rank in trace.ranks.values():
        for mark in rank.marks:
            times.setdefault(mark.name, []).append(None if mark.end is None else mark.end - mark.begin)
        for seconds in _training_steps(rank.marks):
            times.setdefault("training step", []).append(seconds)
    ranks = len(trace.ranks) or 1
    return {name: (len(every) / ranks, _median(every)) for name, every in times.items()}


def _training_steps(marks: Iterable[Mark]) -> list[float]:
    begins = sorted(mark.begin for mark in marks if mark.name == "backward")
    return [later - earlier for earlier, later in pairwise(begins)]


def _median(times: Iterable[float | None]) -> float | None:
    known = [seconds for seconds in times if seconds is not None]
    return median(known) if known else None


def _buckets(traces: tuple[Trace, Trace]) -> list[BucketChange]:
    """The last layout of each module, as rank 0 has it."""
    layouts: list[dict[int, tuple[int, ...]]] = [{}, {}]
    for found, trace in zip(layouts, traces, strict=True):
        if 0 in trace.ranks:
            found.update({layout.module: layout.sizes for layout in trace.ranks[0].buckets})
    modules = sorted({*layouts[0], *layouts[1]})
    both = [BucketChange(module, layouts[0].get(module, ()), layouts[1].get(module, ())) for module in modules]
    return [one for one in both if one.before != one.after]
