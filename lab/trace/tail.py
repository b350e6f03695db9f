"""Read the ends of long traces, from a point that all ranks passed.

A verdict does not wait until long traces are read. Of each rank the last lines are read, and from the part before them
only what says which groups and modules there are. Then calls are dropped until the rest begins alike on all ranks: with
the same collective of a group of all ranks, the same number in each other group, and the same message of each pair.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import BinaryIO

from lab.grouping import group_pairs
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import open_file
from lab.trace.model import Call, RankTrace, Trace

_CHUNK_BYTES = 1 << 20
_MARKS = (b'"n":"init_process_group"', b'"n":"new_group"', b'"n":"destroy_process_group"')
_KEPT = (b'{"k":"group"', *_MARKS, b'{"k":"ddp"', b'{"k":"threads"')
"""Lines with one of these are always read."""
_STEP = b'"n":"step","e":1'
_CALL = re.compile(rb'"op":"((?:send|recv)?)[^"]*","g":"([^"]*)",(?:"peer":(-?\d+),"tag":(\d+))?')
_ANY = -1
"""Source of a message that is received from any rank."""

Stream = tuple[str, int, int, int]
"""Calls that have consecutive numbers on all ranks: the collectives of a group, which have `_ANY` as the other parts,
or the messages of a group with a source, a destination, and a tag."""


def read_kept_lines(file: BinaryIO, until: int) -> Iterator[bytes]:
    """Yield the first line and those about groups and modules, up to the line around an offset."""
    yield file.readline(_CHUNK_BYTES)
    for lines in _chunks(file, until):
        hits = (match for part in _KEPT for match in re.finditer(re.escape(part), lines))
        starts = {lines.rfind(b"\n", 0, match.start()) + 1 for match in hits}
        yield from (lines[start:].partition(b"\n")[0] for start in sorted(starts))


def _chunks(file: BinaryIO, until: int) -> Iterator[bytes]:
    """Yield whole lines, up to the line around an offset."""
    while (size := until - file.tell()) > 0 and (chunk := file.read(min(size, _CHUNK_BYTES))):
        yield chunk + file.readline(_CHUNK_BYTES)


def align_tails(trace: Trace, record: Record) -> None:
    """Drop calls so that those of all ranks begin at a common point, and count what is missing before it."""
    members = {_plain(name): group.ranks for name, group in trace.groups.items()}
    ranks = [one for one in trace.ranks.values() if one.calls or one.skipped_bytes]
    before = {one.rank: _count_skipped(one, record, members) for one in ranks}
    trace.common_start = _cut_at_collective(trace, before)
    streams = defaultdict[Stream, dict[int, list[Call]]](dict)
    for one in ranks:
        for stream, calls in group_pairs((_stream_of(call), call) for call in one.calls).items():
            streams[stream][one.rank] = calls
    counted = {(group, to) for of in before.values() for group, source, to, _ in of if source == _ANY != to}
    unclear = counted | {(group, to) for group, source, to, _ in streams if source == _ANY != to}
    kept = set[int]()
    for stream, of in streams.items():
        first = {rank: calls[0].seq or before[rank][stream] + 1 for rank, calls in of.items()}
        pairs = [(first[rank] + n, call) for rank, calls in of.items() for n, call in enumerate(calls)]
        numbers = [(call.seq or number, call) for number, call in pairs]
        last = max(number for number, _ in numbers)
        absent = (before[rank][stream] + 1 for rank in before.keys() - of.keys())
        start: float = max(*first.values(), *(number for number in absent if number <= last + 1), 1)
        start = inf if stream[2] != _ANY and (stream[0], stream[2]) in unclear else start
        kept.update(id(call) for number, call in numbers if number >= start)
    for one in ranks:
        calls, one.calls = one.calls, [call for call in one.calls if id(call) in kept]
        one.skipped = before[one.rank].total() + len(calls) - len(one.calls)


def _plain(group: str) -> str:
    """Return PyTorch's name of a group, which several groups may have had one after the other."""
    return group.partition("'")[0]


def _stream_of(call: Call) -> Stream:
    group = _plain(call.group)
    if call.seq is not None:
        return call.group, _ANY, _ANY, _ANY
    peer = _ANY if call.from_any or call.peer is None else call.peer
    return (group, call.rank, peer, call.tag) if call.operation.sends else (group, peer, call.rank, call.tag)


def _count_skipped(rank: RankTrace, record: Record, members: Mapping[str, tuple[int, ...]]) -> Counter[Stream]:
    """Count the calls of a rank before those that were read, and its optimizer steps there."""
    skipped = Counter[Stream]()
    with open_file(record.path, f"{TRACE}/{rank_trace(rank.rank)}") as file:
        for lines in _chunks(file, rank.skipped_bytes):
            rank.skipped_steps += lines.count(_STEP)
            for (op, name, peer, tag), times in Counter(_CALL.findall(lines)).items():
                group, number = name.decode("utf-8", "replace"), int(peer or _ANY)
                known = members.get(group, ())
                other = known[number] if 0 <= number < len(known) else number
                ends = (rank.rank, other) if op == b"send" else (other, rank.rank)
                skipped[(group, *ends, int(tag)) if op else (group, _ANY, _ANY, _ANY)] += times
    return skipped


def _cut_at_collective(trace: Trace, before: Mapping[int, Counter[Stream]]) -> bool:
    """Drop the calls before the same collective on all ranks, that which drops least; return whether there is one."""
    cuts = list[dict[int, int]]()
    for name, group in trace.groups.items():
        calls = {rank: enumerate(trace.ranks[rank].calls) for rank in before}
        at = {
            rank: {call.seq: n for n, call in ours if call.group == name and call.seq} for rank, ours in calls.items()
        }
        start = max((min(ours, default=0) for ours in at.values()), default=0)
        if before.keys() <= set(group.ranks) and all(start in ours for ours in at.values()):
            cuts.append({rank: ours[start] for rank, ours in at.items()})
    best = min(cuts, key=lambda cut: sum(cut.values()), default={})
    for rank, position in best.items():
        before[rank].update(map(_stream_of, trace.ranks[rank].calls[:position]))
        trace.ranks[rank].calls = trace.ranks[rank].calls[position:]
    return bool(best)
