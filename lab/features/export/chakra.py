"""A trace as Chakra execution traces, one of each rank, as simulators read them: ASTRA-sim's `<prefix>.<rank>.et`.

The schema is `schema/protobuf/et_def.proto` of https://github.com/mlcommons/chakra, version 0.0.4 of its metadata. A
file is messages, each behind its length: one of `GlobalMetadata`, then one of `Node` for each

- stretch of a rank's own work between calls (`COMP_NODE`, with its duration),
- collective that a simulator can do (`COMM_COLL_NODE`): all_reduce, all_gather, reduce_scatter, all_to_all,
- message (`COMM_SEND_NODE`, `COMM_RECV_NODE`); and of what simulators cannot do: a broadcast or scatter is messages
  from its root, a reduce or gather messages to it, a barrier a message from all to the first rank and back.

Nodes depend on what the rank had behind it: a call on the work before it, work on the calls that had held the rank up,
and collectives of a group on one another. A step that did not end well on all its ranks is left out: a simulator would
wait for it for ever.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lab.features.export.tracks import delimited, message, packed, text, whole
from lab.features.stragglers.timing import Span, blocked_spans, ready_at
from lab.operations import Cut, Operation, Who
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.steps import Step

PREFIX = "lab"
"""Of the names of the files."""
GROUPS = "groups.json"
"""Name of the file that says which ranks are in a group."""
_VERSION = "0.0.4"
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29
"""Fields of `AttributeProto` that are a value."""
_LEAST_BYTES = 1
"""What a message carries at least: simulators refuse empty ones."""


class NodeType(IntEnum):
    """Those of the schema's `NodeType` that are written."""

    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """Those of the schema's `CollectiveCommType` that are written."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


@dataclass(frozen=True, slots=True)
class Deed:
    """What a rank does of a step, as one node."""

    type: NodeType
    name: str
    size: int
    """Bytes: of a collective what each rank brings to it, of a message all of it."""
    collective: CollectiveType | None = None
    group: int = 0
    """Of a collective; 0: all ranks."""
    peer: int = 0
    """Rank at the other end of a message."""
    tag: int = 0
    then: bool = False
    """Whether it is done only when what the rank does of the step before it is done."""


@dataclass
class ChakraTraces:
    """Everything that is to be written."""

    files: dict[int, bytes]
    """By rank."""
    groups: dict[str, list[int]]
    """Ranks of each group that not all ranks are in, by its name in the files."""
    left_out: int = 0
    """Steps that did not end well on all of their ranks."""

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Every file with its name."""
        for rank, data in self.files.items():
            yield f"{PREFIX}.{rank}.et", data
        yield GROUPS, json.dumps(self.groups).encode()


def chakra_traces(trace: Trace, steps: Sequence[Step]) -> ChakraTraces:
    """The execution trace of each rank that has a trace."""
    everybody = tuple(sorted(trace.ranks))
    members = dict.fromkeys(group.ranks for group in trace.groups.values() if tuple(sorted(group.ranks)) != everybody)
    groups = {ranks: number for number, ranks in enumerate(members, start=1)}
    whole_steps = [
        step
        for step in steps
        if step.state == "completed" and (step.message or len({call.op for call in step.calls.values()}) == 1)
    ]
    deeds: dict[tuple[int, int], list[Deed]] = defaultdict(list)
    for step in whole_steps:
        for rank, deed in _deeds(step, groups.get(step.group.ranks, 0)):
            deeds[rank, step.calls[rank].index].append(deed)
    files = {rank.rank: _File(rank, deeds).write() for rank in trace.ranks.values() if rank.recorded}
    named = {str(number): list(ranks) for ranks, number in groups.items()}
    return ChakraTraces(files, named, len(steps) - len(whole_steps))


def _deeds(step: Step, group: int) -> Iterator[tuple[int, Deed]]:
    """What each rank does of a step, in its order."""
    op, ranks, name = step.operation, step.group.ranks, step.title
    kind = _collective(op)
    if len(step.calls) == 1:
        return  # it stays on the rank
    if step.message:
        yield from _message(step, step.source, step.destination, max(call.bytes for call in step.calls.values()))
    elif kind is not None:
        size = max(_LEAST_BYTES, *(call.bytes_in for call in step.calls.values()))
        yield from ((rank, Deed(NodeType.COLLECTIVE, name, size, kind, group)) for rank in step.calls)
    elif op.moves_data:
        root = next((call.root for call in step.calls.values() if call.root is not None), None)
        for rank in ranks:
            if root is not None and rank != root:
                gives, takes = (root, rank) if op.giver is Who.ROOT else (rank, root)
                call = step.calls[rank]
                yield from _message(step, gives, takes, call.bytes_out if gives == root else call.bytes_in)
    else:
        for rank in ranks[1:]:
            yield from _message(step, rank, ranks[0], _LEAST_BYTES)
        for rank in ranks[1:]:
            yield from _message(step, ranks[0], rank, _LEAST_BYTES, then=True)


def _message(
    step: Step, source: int | None, destination: int | None, size: int, *, then: bool = False
) -> Iterator[tuple[int, Deed]]:
    """The ends of a message; its tag is the number of its step, so no two steps can be taken for one another."""
    if source is None or destination is None:
        return
    size, tag = max(size, _LEAST_BYTES), step.number
    name = f"{step.title}, {source} → {destination}" if not step.message else step.title
    yield source, Deed(NodeType.SEND, name, size, peer=destination, tag=tag, then=then)
    yield destination, Deed(NodeType.RECV, name, size, peer=source, tag=tag)


def _collective(op: Operation) -> CollectiveType | None:
    """The kind that an operation is of for a simulator; None where it has to be made of messages."""
    if not (op.giver is Who.ALL and op.taker is Who.ALL and op.cut is not Cut.OTHER):
        return None
    if op.cut is Cut.WHOLE:
        return CollectiveType.ALL_REDUCE if op.reduces else CollectiveType.ALL_GATHER
    return CollectiveType.REDUCE_SCATTER if op.reduces else CollectiveType.ALL_TO_ALL


@dataclass
class _File:
    """Writes the nodes of a rank."""

    rank: RankTrace
    deeds: Mapping[tuple[int, int], Sequence[Deed]]
    written: list[bytes] = field(default_factory=list)
    count: int = 0
    behind: list[int] = field(default_factory=list)
    """Numbers of the nodes that the rank had behind it when it went on."""
    free: float = 0.0
    """Seconds: since then it has been at its own work."""

    def write(self) -> bytes:
        """The whole file."""
        self.free = start = ready_at(self.rank)
        spans, of_call = blocked_spans(self.rank), dict[int, list[int]]()
        last: dict[int, list[int]] = {}
        """By group: the nodes of its last collective."""
        for when, call, held in _moments(self.rank.calls, spans):
            if held is None:
                self._work(when)
                nodes = of_call[call.index] = self._call(call, start, last)
                if call.index in spans and spans[call.index][0] <= call.begin:
                    self.behind = nodes or self.behind
                    self.free = max(self.free, spans[call.index][1])
            else:
                self._work(held[0])
                self.behind = [*self.behind, *of_call[call.index]]
                self.free = max(self.free, held[1])
        self._work(self.rank.last)
        return b"".join([delimited(text(1, _VERSION)), *self.written])

    def _work(self, until: float) -> None:
        """The rank's own work since it was free, as a node."""
        micros = round((until - self.free) * 1e6)
        if micros > 0:
            body = whole(7, micros) + _flag("is_cpu_op", False)
            self.behind = [self._node("own work", NodeType.COMP, self.behind, body)]
            self.free = until

    def _call(self, call: Call, start: float, last: dict[int, list[int]]) -> list[int]:
        """The nodes of a call, which all depend on what the rank had behind it."""
        took = 0 if call.end is None else round((call.end - call.begin) * 1e6)
        times = whole(6, max(0, round((call.begin - start) * 1e6))) + whole(7, max(0, took))
        numbers: list[int] = []
        held = self.behind
        for deed in self.deeds.get((call.rank, call.index), ()):
            before = last.get(deed.group, []) if deed.type is NodeType.COLLECTIVE else numbers if deed.then else []
            number = self._node(deed.name, deed.type, {*held, *before}, times + _attributes(deed, self.rank.rank))
            numbers.append(number)
            if deed.type is NodeType.COLLECTIVE:
                last[deed.group] = [number]
        return numbers

    def _node(self, name: str, kind: NodeType, after: Iterable[int], body: bytes) -> int:
        self.count += 1
        head = whole(1, self.count) + text(2, name) + whole(3, kind)
        self.written.append(delimited(head + packed(5, sorted(after)) + body))
        return self.count


def _moments(calls: Sequence[Call], spans: Mapping[int, Span]) -> list[tuple[float, Call, Span | None]]:
    """When calls began, and, of those that held their rank up only later, when they did."""
    begun: list[tuple[float, Call, Span | None]] = [(call.begin, call, None) for call in calls]
    later = [(spans[call.index][0], call, spans[call.index]) for call in calls if call.index in spans]
    begun += [one for one in later if one[0] > one[1].begin]
    return sorted(begun, key=lambda one: (one[0], one[1].index, one[2] is not None))


def _attributes(deed: Deed, rank: int) -> bytes:
    told = _flag("is_cpu_op", False) + _attribute("comm_size", whole(_UINT64, deed.size))
    if deed.collective is not None:
        told += _attribute("comm_type", whole(_INT64, deed.collective))
        return told + (_attribute("pg_name", text(_STRING, str(deed.group))) if deed.group else b"")
    source, destination = (rank, deed.peer) if deed.type is NodeType.SEND else (deed.peer, rank)
    for name, value in (("comm_src", source), ("comm_dst", destination), ("comm_tag", deed.tag)):
        told += _attribute(name, whole(_INT32, value))
    return told


def _attribute(name: str, value: bytes) -> bytes:
    return message(10, text(1, name) + value)


def _flag(name: str, value: bool) -> bytes:
    return _attribute(name, whole(_BOOL, int(value)))
