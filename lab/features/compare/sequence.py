"""What was called in one run and not in another, or elsewhere: the calls of each rank, as text, aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from lab.features.calls.align import stretches
from lab.features.calls.notation import render_call
from lab.trace.model import Call, Trace


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


def sequence_changes(traces: tuple[Trace, Trace], per_rank: bool) -> list[SequenceChange]:
    """What each rank called otherwise, or rank 0 alone."""
    found: dict[tuple[object, ...], tuple[list[int], Change, Call]] = {}
    for rank in [0] if per_rank else sorted({*traces[0].ranks, *traces[1].ranks}):
        calls, texts = _calls_of(rank, traces)
        for change in align(texts[0], texts[1]):
            call = calls[1][change.after] if change.added else calls[0][change.before]
            found.setdefault(astuple(change), ([], change, call))[0].append(rank)
    changed = [SequenceChange(tuple(ranks), change, call.source, call.phase) for ranks, change, call in found.values()]
    return sorted(changed, key=lambda one: (one.change.before, one.change.after, one.ranks))


def align(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    """The changes between the calls of a rank, as text."""
    changes: dict[tuple[tuple[str, ...], tuple[str, ...]], Change] = {}
    for same, i1, i2, j1, j2 in stretches(before, after):
        if same:
            continue
        key = tuple(before[i1:i2]), tuple(after[j1:j2])
        if key in changes:
            changes[key].times += 1
        else:
            changes[key] = Change(*key, i1, j1)
    return list(changes.values())


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
        for same, i1, i2, j1, j2 in stretches(*texts):
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
