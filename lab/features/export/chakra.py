"""A trace as Chakra execution traces, one per rank, as simulators read them: ASTRA-sim's `<prefix>.<rank>.et`.

The schema is `schema/protobuf/et_def.proto` of https://github.com/mlcommons/chakra, version 0.0.4 of its metadata. A
file is a sequence of messages with their lengths: one of `GlobalMetadata`, then one of `Node` for each

- stretch of a rank's own work between calls (`COMP_NODE`, with its duration),
- collective that simulators support (`COMM_COLL_NODE`): all_reduce, all_gather, reduce_scatter, all_to_all,
- message (`COMM_SEND_NODE`, `COMM_RECV_NODE`). Other collectives become messages: a broadcast or scatter becomes
  messages from its root, a reduce or gather messages to it, a barrier a message from all to the first rank and back.

A node depends on the rank's previous nodes: a call on the work before it, work on the calls that blocked the rank, and
collectives of a group on each other. A step that did not complete on all its ranks is left out: a simulator would wait
for it forever.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from lab.features.export.tracks import encode_delimited, encode_int, encode_ints, encode_message, encode_text
from lab.features.stragglers.timing import Span, blocked_spans, ready_at
from lab.operations import Cut, Operation, Who
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.steps import Step

PREFIX = "lab"
"""Prefix of the names of the files."""
GROUPS = "groups.json"
"""Name of the file that says which ranks are in a group."""
_VERSION = "0.0.4"
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29
"""Fields of `AttributeProto` that are a value."""
_LEAST_BYTES = 1
"""The minimum size of a message: simulators refuse empty ones."""


class NodeType(IntEnum):
    """The values of the schema's `NodeType` that are written."""

    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """The values of the schema's `CollectiveCommType` that are written."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


class NodePart(NamedTuple):
    """A rank's part of a step, as one node."""

    type: NodeType
    name: str
    attributes: bytes
    group: int = 0
    """Number of the group of a collective; 0: all ranks."""
    then: bool = False
    """Whether it depends on the rank's previous part of the same step."""


@dataclass
class ChakraTraces:
    """The files to write."""

    files: dict[int, bytes]
    """By rank."""
    groups: dict[str, list[int]]
    """Ranks of each group that does not have all ranks, by its name in the files."""
    left_out: int = 0
    """Number of steps that did not complete on all of their ranks."""

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Every file with its name."""
        for rank, data in self.files.items():
            yield f"{PREFIX}.{rank}.et", data
        yield GROUPS, json.dumps(self.groups).encode()


def chakra_traces(trace: Trace, steps: Sequence[Step]) -> ChakraTraces:
    """Return the execution trace of each rank that has a trace."""
    all_ranks = tuple(sorted(trace.ranks))
    members = dict.fromkeys(group.ranks for group in trace.groups.values() if tuple(sorted(group.ranks)) != all_ranks)
    groups = {ranks: number for number, ranks in enumerate(members, start=1)}
    completed = [step for step in steps if step.state == "completed"]
    done_steps = [one for one in completed if one.message or len({call.op for call in one.calls.values()}) == 1]
    parts: dict[tuple[int, int], list[NodePart]] = defaultdict(list)
    for step in done_steps:
        for rank, part in _parts(step, groups.get(step.group.ranks, 0)):
            parts[rank, step.calls[rank].index].append(part)
    files = {rank.rank: _File(rank, parts).write() for rank in trace.ranks.values() if rank.recorded}
    named = {str(number): list(ranks) for ranks, number in groups.items()}
    return ChakraTraces(files, named, len(steps) - len(done_steps))


def _parts(step: Step, group: int) -> Iterator[tuple[int, NodePart]]:
    """Yield each rank's parts of a step, in order."""
    op, (first, *others), calls = step.operation, step.group.ranks, step.calls
    if len(calls) == 1:
        return  # it stays on the rank
    if step.message:
        yield from _message(step, step.source, step.destination, max(call.bytes for call in calls.values()))
    elif (kind := _collective(op)) is not None:
        size = max(_LEAST_BYTES, *(call.bytes_in for call in calls.values()))
        attributes = _NOT_ON_CPU + _attribute("comm_size", encode_int(_UINT64, size))
        attributes += _attribute("comm_type", encode_int(_INT64, kind))
        attributes += _attribute("pg_name", encode_text(_STRING, str(group))) if group else b""
        yield from ((rank, NodePart(NodeType.COLLECTIVE, step.title, attributes, group)) for rank in calls)
    elif op.moves_data:
        root = next((call.root for call in calls.values() if call.root is not None), None)
        for rank in step.group.ranks:
            if root is None or rank == root:
                continue
            if op.giver is Who.ROOT:
                yield from _message(step, root, rank, calls[rank].bytes_out)
            else:
                yield from _message(step, rank, root, calls[rank].bytes_in)
    else:
        for rank in others:
            yield from _message(step, rank, first, _LEAST_BYTES)
        for rank in others:
            yield from _message(step, first, rank, _LEAST_BYTES, then=True)


def _message(
    step: Step, source: int | None, destination: int | None, size: int, *, then: bool = False
) -> Iterator[tuple[int, NodePart]]:
    """Yield the ends of a message; its tag is the number of its step, so that no two steps can be confused."""
    if source is None or destination is None:
        return
    name = step.title if step.message else f"{step.title}, {source} → {destination}"
    ends = {"comm_src": source, "comm_dst": destination, "comm_tag": step.number}
    attributes = _NOT_ON_CPU + _attribute("comm_size", encode_int(_UINT64, max(size, _LEAST_BYTES)))
    attributes += b"".join(_attribute(key, encode_int(_INT32, value)) for key, value in ends.items())
    yield source, NodePart(NodeType.SEND, name, attributes, then=then)
    yield destination, NodePart(NodeType.RECV, name, attributes)


def _collective(op: Operation) -> CollectiveType | None:
    """Return the kind of an operation for a simulator; None if it has to be built from messages."""
    if not (op.giver is Who.ALL and op.taker is Who.ALL and op.cut is not Cut.OTHER):
        return None
    if op.cut is Cut.WHOLE:
        return CollectiveType.ALL_REDUCE if op.reduces else CollectiveType.ALL_GATHER
    return CollectiveType.REDUCE_SCATTER if op.reduces else CollectiveType.ALL_TO_ALL


@dataclass
class _File:
    """Writes the nodes of a rank."""

    rank: RankTrace
    parts: Mapping[tuple[int, int], Sequence[NodePart]]
    written: list[bytes] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    """Numbers of the nodes on which the next node depends."""
    last: dict[int, int] = field(default_factory=dict)
    """The node of the last collective, by group."""
    free: float = 0.0
    """Seconds: the time from which on the rank has been at its own work."""

    def write(self) -> bytes:
        """Return the file."""
        self.free = start = ready_at(self.rank)
        spans, of_call = blocked_spans(self.rank), dict[int, list[int]]()
        for time, call, held in _moments(self.rank.calls, spans):
            self._work(time)
            if held is None:
                nodes = of_call[call.index] = self._call(call, start)
                if call.index in spans and spans[call.index][0] <= call.begin:
                    self.previous = nodes or self.previous
                    self.free = max(self.free, spans[call.index][1])
            else:
                self.previous = [*self.previous, *of_call[call.index]]
                self.free = max(self.free, held[1])
        self._work(self.rank.last)
        return b"".join([encode_delimited(encode_text(1, _VERSION)), *self.written])

    def _work(self, until: float) -> None:
        """Add the rank's own work since it was free as a node."""
        if (micros := round((until - self.free) * 1e6)) > 0:
            self.previous = [self._node("own work", NodeType.COMP, self.previous, encode_int(7, micros) + _NOT_ON_CPU)]
            self.free = until

    def _call(self, call: Call, start: float) -> list[int]:
        """Add the nodes of a call, which all depend on the previous ones, and return their numbers."""
        duration = 0 if call.end is None else round((call.end - call.begin) * 1e6)
        times = encode_int(6, max(0, round((call.begin - start) * 1e6))) + encode_int(7, max(0, duration))
        numbers: list[int] = []
        for part in self.parts.get((call.rank, call.index), ()):
            is_collective = part.type is NodeType.COLLECTIVE
            before = [self.last[part.group]] if is_collective and part.group in self.last else []
            before += numbers if part.then else []
            numbers.append(self._node(part.name, part.type, {*self.previous, *before}, times + part.attributes))
            if is_collective:
                self.last[part.group] = numbers[-1]
        return numbers

    def _node(self, name: str, kind: NodeType, after: Iterable[int], body: bytes) -> int:
        number = len(self.written) + 1
        head = encode_int(1, number) + encode_text(2, name) + encode_int(3, kind)
        self.written.append(encode_delimited(head + encode_ints(5, sorted(after)) + body))
        return number


def _moments(calls: Sequence[Call], spans: Mapping[int, Span]) -> list[tuple[float, Call, Span | None]]:
    """Return when calls began, and when those calls blocked their rank that did so only later."""
    begun: list[tuple[float, Call, Span | None]] = [(call.begin, call, None) for call in calls]
    later = [(spans[call.index][0], call, spans[call.index]) for call in calls if call.index in spans]
    begun += [one for one in later if one[0] > one[1].begin]
    return sorted(begun, key=lambda one: (one[0], one[1].index, one[2] is not None))


def _attribute(name: str, value: bytes) -> bytes:
    return encode_message(10, encode_text(1, name) + value)


_NOT_ON_CPU = _attribute("is_cpu_op", encode_int(_BOOL, 0))
