"""A trace as flight recorder dumps, one of each rank, which PyTorch's `torchfrtrace` reads.

What a record does not know is left out (`timeout_ms`, threads); what `torchfrtrace` can only understand if it is told
otherwise than PyTorch tells it is told so that its verdict is right:

- It takes calls of a group for one call where their numbers are the same, messages too, and then looks for every
  member of the group. So each two ranks that send each other messages have a group of their own for them, in which the
  two ends of a message have the same number.
- It compares the sizes of the first tensor only, so tensors for all ranks are told as one, as gloo's dumps do.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.features.dumps import dump as words
from lab.operations import Cut, Operation, Who
from lab.trace.model import Buffer, Call, Group, RankTrace, Trace
from lab.trace.steps import Step

PREFIX = "rank_"
"""Of the names of the files; the rank follows."""
_PROTOCOL = 2
"""Of pickle; PyTorch's dumps have it."""
_Place = tuple[Group, int]
"""Where a call stands: its group in the dump, and its number there."""


def rank_dumps(trace: Trace, steps: Sequence[Step]) -> Iterator[tuple[str, bytes]]:
    """The dump of each rank that has a trace, with the name of its file.

    A message whose other end is not known, or no rank, is in none.
    """
    places = _place_messages(steps, trace)
    for rank in trace.ranks.values():
        if rank.recorded:
            yield f"{PREFIX}{rank.rank}", pickle.dumps(_dump(rank, trace, places), protocol=_PROTOCOL)


def _place_messages(steps: Sequence[Step], trace: Trace) -> dict[tuple[int, int], _Place]:
    """By rank and index of a send or receive: the group of the two ranks, and the number of the message there."""
    numbers: Counter[str] = Counter()
    places = {}
    for step in steps:
        ends = {step.source, step.destination}
        ranks = tuple(sorted(rank for rank in ends if rank in trace.ranks))
        if not step.message or len(ranks) < len(ends):
            continue
        name = f"{step.group.name}/{'-'.join(map(str, ranks))}"
        group = Group(name, ranks, step.group.backend, _description(step.group))
        numbers[name] += 1
        for call in step.calls.values():
            places[call.rank, call.index] = (group, numbers[name])
    return places


def _dump(rank: RankTrace, trace: Trace, messages: Mapping[tuple[int, int], _Place]) -> dict[str, Any]:
    groups = [group for group in trace.groups.values() if rank.rank in group.ranks]
    found: list[tuple[Call, _Place]] = []
    for call in rank.calls:
        known = trace.groups.get(call.group)
        if call.seq is not None and known is not None:
            found.append((call, (known, call.seq)))
        elif (place := messages.get((call.rank, call.index))) is not None:
            found.append((call, place))
            groups.append(place[0])
    numbers = {group.name: number for number, group in enumerate(dict.fromkeys(groups))}
    of_group: Counter[str] = Counter()
    entries = []
    for number, (call, (group, seq)) in enumerate(found):
        of_group[group.name] += 1
        about = {"record_id": number, "pg_id": numbers[group.name], "op_id": of_group[group.name]}
        entries.append({**about, **_entry(call, group, seq, trace)})
    return {
        "version": words.VERSION,
        "pg_config": {
            group.name: {"name": group.name, "desc": _description(group), "ranks": str(list(group.ranks))}
            for group in dict.fromkeys(groups)
        },
        "pg_status": {str(number): _status(name, entries) for name, number in numbers.items()},
        "entries": entries,
    }


def _entry(call: Call, group: Group, seq: int, trace: Trace) -> dict[str, Any]:
    op, message = call.operation, call.seq is None
    takes, gives = _tensors(call.inputs, joined=op.cut is Cut.TENSORS), _tensors(call.outputs, joined=_gathers(op))
    if message:
        takes, gives = (takes, []) if op.sends else ([], gives or takes)
    began = _unix_ns(call.begin, trace)
    done = call.state == "completed"
    return {
        "frames": _frames(call),
        "process_group": (group.name, _description(group)),
        "collective_seq_id": seq,
        "p2p_seq_id": seq if message else 0,
        "profiling_name": f"{_backend(group)}:{_name(call, group)}",
        "time_created_ns": began,
        "input_sizes": [sizes for _, sizes in takes],
        "input_dtypes": [dtype for dtype, _ in takes],
        "output_sizes": [sizes for _, sizes in gives],
        "output_dtypes": [dtype for dtype, _ in gives],
        "state": words.COMPLETED if done else words.STARTED,
        "time_discovered_started_ns": began,
        "time_discovered_completed_ns": _unix_ns(call.end, trace) if done and call.end is not None else None,
        "retired": call.state != "unfinished",
        "is_p2p": message,
    }


def _gathers(op: Operation) -> bool:
    """Whether what a rank gets is a tensor from each rank."""
    return op.giver is Who.ALL and not (op.reduces or op.joined) and op.cut in (Cut.WHOLE, Cut.TENSORS)


def _tensors(buffers: Sequence[Buffer], *, joined: bool) -> list[tuple[str, list[int]]]:
    """Dtype and sizes of each tensor, or of the one tensor that they make if `joined`."""
    told = [(words.dumped_dtype(buffer.dtype), list(buffer.shape)) for buffer in buffers]
    if not joined or not told:
        return told
    alike = len({tuple(sizes) for _, sizes in told}) == 1
    return [(told[0][0], [len(told), *told[0][1]] if alike else [sum(buffer.count for buffer in buffers)])]


def _name(call: Call, group: Group) -> str:
    if call.seq is not None:
        return call.operation.dumped or call.op
    here, there = (group.ranks.index(rank) if rank in group.ranks else 0 for rank in (call.rank, call.peer))
    return f"{call.op} {here}{'->' if call.op == 'send' else '<-'}{there}"  # of group ranks


def _frames(call: Call) -> list[dict[str, Any]]:
    file, _, line = call.source.rpartition(":")
    if not file or not line.isdecimal():
        return []
    return [{"name": call.function or "<module>", "filename": file, "line": int(line)}]


def _status(name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    ours = [entry for entry in entries if entry["process_group"][0] == name and not entry["is_p2p"]]
    last = max((entry["collective_seq_id"] for entry in ours), default=-1)
    done = max((entry["collective_seq_id"] for entry in ours if entry["state"] == words.COMPLETED), default=-1)
    return {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": done}


def _backend(group: Group) -> str:
    """What carries a group, where `torchfrtrace` knows of it; else gloo, whose calls have the same names."""
    return next((backend for backend in words.BACKENDS if backend == group.backend), "gloo")


def _description(group: Group) -> str:
    return words.DEFAULT_GROUP if group.plain_label == "default" else group.description or words.UNDESCRIBED


def _unix_ns(seconds: float, trace: Trace) -> int:
    return round(trace.origin * 1e9) + round(seconds * 1e9)
