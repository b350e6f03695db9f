"""Read the ends of long traces, from a point that all ranks passed.

A verdict does not wait until long traces are read. Of each rank the last lines are read, and from the part before them
only what says which groups and modules there are. Then calls are dropped so that the collectives of each group begin
with the same number on all ranks, and the messages from one rank to another with the same message on both.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import BinaryIO

from lab.grouping import group_pairs
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import list_folder, open_file
from lab.trace.model import Call, RankTrace, Trace

_CHUNK_BYTES = 1 << 20
_KEPT = (b'{"k":"group"', b'"n":"init_process_group"', b'"n":"new_group"', b'"n":"destroy_process_group"',
         b'{"k":"ddp"', b'{"k":"threads"')  # fmt: skip
"""Lines with one of these are always read."""
_STEP = b'"n":"step","e":1'
_CALL = re.compile(rb'"op":"((?:send|recv)?)[^"]*","g":"([^"]*)",(?:"peer":(-?\d{1,9}),"tag":(\d{1,18}))?')
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


def skip_beginnings(record: Record, ranks: Sequence[RankTrace], most_bytes: float) -> None:
    """Set how much of each file is skipped, so that this many bytes remain in total."""
    sizes = list_folder(record.path, TRACE)
    for rank in ranks if sum(sizes.values()) > most_bytes else ():
        rank.skipped_bytes = max(0, sizes.get(rank_trace(rank.rank), 0) - int(most_bytes) // len(ranks))


def align_tails(trace: Trace, record: Record) -> None:
    """Drop calls so that those of all ranks begin at a common point, and count what is missing before it."""
    members = {_plain(name): group.ranks for name, group in trace.groups.items()}
    ranks = [one for one in trace.ranks.values() if one.calls or one.skipped_bytes]
    before = {one.rank: _count_skipped(one, record, members) for one in ranks}
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
    with suppress(OSError), open_file(record.path, f"{TRACE}/{rank_trace(rank.rank)}") as file:
        for lines in _chunks(file, rank.skipped_bytes):
            rank.skipped_steps += lines.count(_STEP)
            for (op, name, peer, tag), times in Counter(_CALL.findall(lines)).items():
                group, number = name.decode("utf-8", "replace"), int(peer or _ANY)
                known = members.get(group, ())
                other = known[number] if 0 <= number < len(known) else number
                ends = (rank.rank, other) if op == b"send" else (other, rank.rank)
                skipped[(group, *ends, int(tag)) if op else (group, _ANY, _ANY, _ANY)] += times
    return skipped
