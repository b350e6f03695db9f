"""A trace as flight recorder dumps, one per rank, which PyTorch's `torchfrtrace` reads.

Unknown values are left out (`timeout_ms`, threads). Where `torchfrtrace` would misread the values that PyTorch writes,
the dump differs from PyTorch's, so that the verdict is right:

- It matches calls of a group by their numbers, messages too, and then expects every member of the group. So each two
  ranks that send each other messages have a group of their own for them, in which the two ends of a message have the
  same number.
- It compares the sizes of the first tensor only. So tensors for all ranks are written as one, as in gloo's dumps.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.features.dumps import dump as dump_format
from lab.operations import Cut, Operation, Who
from lab.trace.model import Buffer, Call, Group, RankTrace, Trace
from lab.trace.steps import Step

PREFIX = "rank_"
"""Prefix of the names of the files; the rank follows."""
_PROTOCOL = 2
"""Version of pickle that PyTorch's dumps have."""
_GroupSlot = tuple[Group, int]
"""The group of a call in the dump, and its number there."""


def rank_dumps(trace: Trace, steps: Sequence[Step]) -> Iterator[tuple[str, bytes]]:
    """Yield the dump of each rank that has a trace, with the name of its file.

    A message whose other end is unknown or is not a rank is left out.
    """
    slots = _number_messages(steps, trace)
    for rank in trace.ranks.values():
        if rank.recorded:
            yield f"{PREFIX}{rank.rank}", pickle.dumps(_dump(rank, trace, slots), protocol=_PROTOCOL)


def _number_messages(steps: Sequence[Step], trace: Trace) -> dict[tuple[int, int], _GroupSlot]:
    """Return the group of the two ranks and the number of the message there, by rank and index of a send or receive."""
    numbers: Counter[str] = Counter()
    slots = {}
    for step in steps:
        ends = {step.source, step.destination}
        ranks = tuple(sorted(rank for rank in ends if rank in trace.ranks))
        if not step.message or len(ranks) < len(ends):
            continue
        name = f"{step.group.name}/{'-'.join(map(str, ranks))}"
        group = Group(name, ranks, step.group.backend, _description(step.group))
        numbers[name] += 1
        for call in step.calls.values():
            slots[call.rank, call.index] = (group, numbers[name])
    return slots


def _dump(rank: RankTrace, trace: Trace, messages: Mapping[tuple[int, int], _GroupSlot]) -> dict[str, Any]:
    groups = [group for group in trace.groups.values() if rank.rank in group.ranks]
    numbered: list[tuple[Call, _GroupSlot]] = []
    for call in rank.calls:
        known = trace.groups.get(call.group)
        if call.seq is not None and known is not None and rank.rank in known.ranks:
            numbered.append((call, (known, call.seq)))
        elif (slot := messages.get((call.rank, call.index))) is not None:
            numbered.append((call, slot))
            groups.append(slot[0])
    numbers = {group.name: number for number, group in enumerate(dict.fromkeys(groups))}
    of_group: Counter[str] = Counter()
    entries = []
    for number, (call, (group, seq)) in enumerate(numbered):
        of_group[group.name] += 1
        about = {"record_id": number, "pg_id": numbers[group.name], "op_id": of_group[group.name]}
        entries.append({**about, **_entry(call, group, seq, trace)})
    return {
        "version": dump_format.VERSION,
        dump_format.OVER: True,
        "pg_config": {
            group.name: {"name": group.name, "desc": _description(group), "ranks": str(list(group.ranks))}
            for group in dict.fromkeys(groups)
        },
        "pg_status": {str(number): _status(name, entries) for name, number in numbers.items()},
        "entries": entries,
    }


def _entry(call: Call, group: Group, seq: int, trace: Trace) -> dict[str, Any]:
    op, message = call.operation, call.seq is None
    inputs, outputs = _tensors(call.inputs, joined=op.cut is Cut.TENSORS), _tensors(call.outputs, joined=_gathers(op))
    if message:
        inputs, outputs = (inputs, []) if op.sends else ([], outputs or inputs)
    began = _unix_ns(call.begin, trace)
    done = call.state == "completed"
    return {
        "frames": _frames(call),
        "process_group": (group.name, _description(group)),
        "collective_seq_id": seq,
        "p2p_seq_id": seq if message else 0,
        "profiling_name": f"{_backend(group)}:{_name(call, group)}",
        "time_created_ns": began,
        "input_sizes": [sizes for _, sizes in inputs],
        "input_dtypes": [dtype for dtype, _ in inputs],
        "output_sizes": [sizes for _, sizes in outputs],
        "output_dtypes": [dtype for dtype, _ in outputs],
        "state": dump_format.COMPLETED if done else dump_format.STARTED,
        "time_discovered_started_ns": began,
        "time_discovered_completed_ns": _unix_ns(call.end, trace) if done and call.end is not None else None,
        "retired": call.state != "unfinished",
        "is_p2p": message,
    }


def _gathers(op: Operation) -> bool:
    """Return whether a rank receives a tensor from each rank."""
    return op.giver is Who.ALL and not (op.reduces or op.joined) and op.cut in (Cut.WHOLE, Cut.TENSORS)


def _tensors(buffers: Sequence[Buffer], *, joined: bool) -> list[tuple[str, list[int]]]:
    """Return dtype and sizes of each tensor, or of the one tensor that they form if `joined`."""
    tensors = [(dump_format.dumped_dtype(buffer.dtype), list(buffer.shape)) for buffer in buffers]
    if not joined or not tensors:
        return tensors
    same_size = len({tuple(sizes) for _, sizes in tensors}) == 1
    return [(tensors[0][0], [len(tensors), *tensors[0][1]] if same_size else [sum(buffer.count for buffer in buffers)])]


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
    done = max((entry["collective_seq_id"] for entry in ours if entry["state"] == dump_format.COMPLETED), default=-1)
    return {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": done}


def _backend(group: Group) -> str:
    """Return the backend of a group if `torchfrtrace` knows it; otherwise gloo, whose calls have the same names."""
    return next((backend for backend in dump_format.BACKENDS if backend == group.backend), "gloo")


def _description(group: Group) -> str:
    return dump_format.DEFAULT_GROUP if group.plain_label == "default" else group.description or dump_format.UNDESCRIBED


def _unix_ns(seconds: float, trace: Trace) -> int:
    return round(trace.origin * 1e9) + round(seconds * 1e9)
