"""What was called in one run and not in another, or elsewhere: the calls of each rank, as text, aligned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from lab.trace.align import stretches
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.notation import render_call

_OBJECT = "_object"
"""In the names of what sends objects."""


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


def texts_of(trace: Trace) -> Mapping[int, tuple[str, ...]]:
    """All that was called, by rank, as far as it is the same in every run of the same program."""
    found = {}
    for rank, calls in settled_calls(trace).items():
        pickled, phase = _pickled(trace.ranks[rank].calls), not trace.ranks[rank].threads
        found[rank] = tuple(
            render_call(call, trace.groups, phase=phase, whole=True, sizes=call.index not in pickled) for call in calls
        )
    return found


def settled_calls(trace: Trace) -> dict[int, list[Call]]:
    """The calls of each rank in the order of the program.

    Where several threads of a rank make calls, that is an order only within a group, and between the same two ranks:
    so the calls of one group stand together there, its messages by what they are.
    """
    return {rank: _by_group(of, trace) if of.threads else of.calls for rank, of in sorted(trace.ranks.items())}


def _by_group(rank: RankTrace, trace: Trace) -> list[Call]:
    def place(call: Call) -> tuple[object, ...]:
        group = trace.groups.get(call.group)
        message = (
            (call.op, -1 if call.peer is None or call.from_any else call.peer, call.tag) if call.seq is None else ()
        )
        return group.title if group is not None else call.group, call.seq is None, message

    return sorted(rank.calls, key=place)


def _pickled(calls: Iterable[Call]) -> set[int]:
    """The calls that send pickled objects, whose lengths are those of their values: paths, times, names.

    PyTorch tells the length before the bytes, and not by the function that the script would call to send bytes.
    """
    found = set()
    last: dict[str, Call] = {}
    for call in calls:
        before = last.get(call.group)
        if call.own and all(tensor.dtype == "uint8" and len(tensor.shape) == 1 for tensor in call.own):
            told = before is not None and (before.source, before.via) == (call.source, call.via) and _is_length(before)
            own = call.via.rpartition(".")[2] != call.op and call.phase != "backward"
            if _OBJECT in call.via or (told and own):
                found.add(call.index)
        last[call.group] = call
    return found


def _is_length(call: Call) -> bool:
    return [(tensor.dtype, len(tensor.shape)) for tensor in call.own] == [("int64", 1)]
