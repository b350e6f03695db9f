"""Read the traces of a record: parse the lines, align the clocks, match the groups of all ranks, and collect the calls.

A truncated or damaged trace still opens and reports what is missing.

A verdict does not wait until long traces are read. Of each rank the last lines are read, and from the part before them
only what says which groups and modules there are. Then calls are dropped so that the collectives of each group begin
with the same number on all ranks, and the messages from one rank to another with the same message on both.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from math import inf
from operator import attrgetter
from typing import Any, BinaryIO

from lab.errors import RecordError
from lab.feature import hooks
from lab.node.messages.agent import Stack
from lab.record import record_files
from lab.record.events import Cancelled, Clock, TimedOut
from lab.record.layout import MOST_RANKS, TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import MOST_LINES_BYTES, list_folder, list_names, open_file, parse_line, read_lines
from lab.trace import model
from lab.trace.model import Buffer, Call, Clocks, Group, Phase, RankTrace, Reading, StoreLookup, Trace
from lab.words import format_count, group_pairs

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


# -- parse and validate the values of a line: a script can write anything into its trace

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that reading a line can raise if no recorder wrote it."""
_LARGEST = 1 << 63
"""Times, sizes, and counts from this value on are damage."""
_GREATEST = 1e300
_NUMBERS = {int, float, bool}
_NON_FINITE = ("nan", "inf", "-inf")


def read_number(line: Mapping[str, Any], key: str) -> int:
    """Return an integer of a line; 0 if the key is missing or the value is one that no recorder writes."""
    value = line.get(key)
    return int(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0


def parse_count(value: Any, most: int = _LARGEST) -> int:
    """Return a count, a time, or an index after validation.

    Raises:
        ValueError: The value is not an integer in the allowed range.
    """
    if type(value) is not int or not 0 <= value < most:
        raise ValueError(value)
    return value


def parse_buffers(described: Any, values: Any, summaries: Any) -> tuple[Buffer, ...]:
    """Return the tensors of a call from their dtypes and shapes, with the recorded values or summaries."""
    if not summaries and len(values or ()) == len(described) == 1:  # the common case
        (((dtype, shape),), (elements,)) = described, values
        return (Buffer(str(dtype), parse_shape(shape), _parse_elements(elements)),)
    kept, summarised = chain(values or (), repeat(None)), chain(summaries or (), repeat(None))
    return tuple(
        Buffer(str(dtype), parse_shape(shape), _parse_elements(elements), _parse_summary(summary))
        for (dtype, shape), elements, summary in zip(described, kept, summarised, strict=False)
    )


def parse_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of a tensor.

    Raises:
        ValueError: No tensor can have this shape.
    """
    shape_sizes = tuple(map(parse_count, shape))
    if len(shape_sizes) > 1 and math.prod(shape_sizes) >= _LARGEST:
        raise ValueError(shape_sizes)
    return shape_sizes


def _parse_elements(elements: Any) -> list[Any] | None:
    """Return the elements of a tensor, numbers or pairs of numbers; None if they are anything else."""
    if not isinstance(elements, list):
        return None
    if {*map(type, elements)} <= _NUMBERS and abs(sum(elements)) < _GREATEST:
        return elements
    return elements if all(_is_element(element) for element in elements) else None


def _is_element(element: Any) -> bool:
    if isinstance(element, list):
        return len(element) == 2 and not any(isinstance(it, list) for it in element) and all(map(_is_element, element))
    return element in _NON_FINITE if isinstance(element, str) else type(element) in _NUMBERS and math.isfinite(element)


def _parse_summary(summary: Any) -> Mapping[str, Any] | None:
    """Return the summary of a tensor that was too large to be recorded; None if it is not valid."""
    if not isinstance(summary, dict) or not isinstance(summary.get("hash", ""), str):
        return None
    known = [summary[name] for name in ("n", "norm", "min", "max", "sampled") if name in summary]
    return summary if _parse_elements(known) is not None else None


# -- clocks, and the identity of groups across ranks

_DRIFT = 1e-4
"""Quartz clocks drift by up to 50 µs per second, and each comparison involves two of them."""


def align_clocks(starts: Mapping[int, Mapping[str, Any]], record: Record) -> Clocks:
    """Return the clocks of all ranks, from the first lines of their traces.

    Ranks that share a clock also share its error. If the lab has no reading of a clock, one of its ranks provides the
    time of day.
    """
    if not starts:
        return Clocks()
    events = [*record.events()]
    clocks = [event for event in events if isinstance(event, Clock)]
    over = max((event.time for event in events), default=0.0)
    nodes, names = record.ranks(), {rank: str(start.get("boot", rank)) for rank, start in starts.items()}
    known: dict[str, tuple[Reading, float]] = {}
    for rank, start in starts.items():
        if names[rank] not in known:
            exchanges = [clock for clock in clocks if clock.boot == names[rank] and clock.monotonic_s]
            last = next((clock for clock in reversed(clocks) if clock.node == nodes.get(rank)), None)
            clock = _clock_by_exchanges(exchanges, start, over) if exchanges else _clock_by_time_of_day(start, last)
            known[names[rank]] = clock
    origin = min(known[names[rank]][0].nanoseconds(read_number(start, "t")) for rank, start in starts.items())
    readings = {name: reading._replace(offset=reading.offset - origin) for name, (reading, _) in known.items()}
    errors = {rank: known[name][1] for rank, name in names.items()}
    return Clocks({rank: readings[name] for rank, name in names.items()}, origin / 1e9, names, errors)


def _clock_by_time_of_day(start: Mapping[str, Any], clock: Clock | None) -> tuple[Reading, float]:
    """Return a clock's reading and error from the time of day that a rank recorded when its trace began."""
    offset_s, error_s = (clock.offset_s, clock.error_s) if clock is not None else (0.0, 0.0)
    offset = read_number(start, "wall") - read_number(start, "t") - int(offset_s * 1e9)
    within_s = read_number(start, "within") / 1e9 if "within" in start else model.SHARED_CLOCK_ERROR_S
    return Reading(offset), error_s + max(model.SHARED_CLOCK_ERROR_S, within_s)


def _clock_by_exchanges(exchanges: Sequence[Clock], start: Mapping[str, Any], over: float) -> tuple[Reading, float]:
    """Return a clock's reading and error from exchanges with the lab.

    Uses the single best exchange, or the line through the best of the first half and the best of the second half.
    """
    best = min(exchanges, key=lambda clock: clock.error_s)
    offset = _offset(best)
    began = (read_number(start, "t") + offset) / 1e9
    over = max(over, began)
    choices = [(Reading(offset), best.error_s + _DRIFT * max(abs(best.time - began), abs(over - best.time)))]
    middle = (min(clock.time for clock in exchanges) + max(clock.time for clock in exchanges)) / 2
    first, last = ([clock for clock in exchanges if (clock.time > middle) == late] for late in (False, True))
    if first and last:
        clock, other = (min(some, key=lambda clock: clock.error_s) for some in (first, last))
        shown = round((other.monotonic_s - clock.monotonic_s) * 1e9)
        drift = (_offset(other) - _offset(clock)) / shown if shown > 0 else 0.0
        beyond_s = max(0.0, clock.time - began, over - other.time)
        error_s = max(clock.error_s, other.error_s) + 2 * _DRIFT * beyond_s
        if abs(drift) <= _DRIFT:
            choices.append((Reading(_offset(clock), drift, round(clock.monotonic_s * 1e9)), error_s))
    reading, error_s = min(choices, key=lambda choice: choice[1])
    return reading, error_s + model.SHARED_CLOCK_ERROR_S


def _offset(clock: Clock) -> int:
    """Return the nanoseconds to add to the node's monotonic clock to get the lab's Unix time."""
    return round((clock.time - clock.monotonic_s) * 1e9)


@dataclass(eq=False)
class _World:
    """A default group whose members report their rank in it."""

    size: int
    members: dict[int, int] = field(default_factory=dict)
    """PyTorch's rank -> rank of the run, for the members that have reported."""
    settled: bool = False
    pending: list[Phase] = field(default_factory=list)
    """Phases with members, collected until the world is settled."""

    def differs(self) -> bool:
        """Return whether any known member has a different rank in the run than in the group."""
        return any(rank != known for rank, known in self.members.items())

    def ranks(self, group_ranks: Iterable[int]) -> tuple[int, ...]:
        """Return the ranks of the run for PyTorch's ranks."""
        return tuple(self.members.get(rank, rank) for rank in group_ranks)


class Worlds:
    """The groups of a trace, as reported by all readers."""

    def __init__(self, trace: Trace) -> None:
        self.changed = False
        """Whether calls that were already read now belong to other ranks; the code that handles this resets it."""
        self.readers: list[RankReader] = []
        self._trace = trace
        self._ranks: dict[str, tuple[int, ...]] = {}
        """By name of a group: PyTorch's ranks of its members, from the first member that reported."""
        self._world_of: dict[str, _World] = {}
        """By name of a group: its world, if known."""
        self._now: dict[int, _World] = {}
        """By rank: its current world, if it has reported one."""
        self._names: dict[tuple[int, str], list[str]] = {}
        """By rank and PyTorch's name: the lab's names for the groups that had this name, the latest last."""

    def add_group(self, rank: int, line: Mapping[str, Any], source: str) -> None:
        """Add a `group` line of a rank."""
        if not (ranks := tuple(parse_count(member, MOST_RANKS) for member in line["ranks"])):
            raise ValueError(ranks)
        own = parse_count(line["rank"], len(ranks)) if "rank" in line else None
        world = self._now.get(rank)
        if (name := self._new_name(rank, str(line["g"]), ranks, own)) not in self._ranks:
            self._ranks[name] = ranks
            if own is None and world is not None:
                self._world_of[name] = world
                ranks = world.ranks(ranks) if world.settled else ranks
            description = str(line.get("backend", "")), str(line.get("desc", ""))
            self._trace.groups[name] = Group(name, ranks, *description, source)
        if own is not None:
            world = self._now[rank] = self._world_of.setdefault(name, _World(len(self._ranks[name])))
            world.members[own] = rank
            if len(world.members) == world.size:
                self._settle(world)

    def _new_name(self, rank: int, plain: str, ranks: tuple[int, ...], own: int | None) -> str:
        """Return the lab's name for a group that a rank created.

        PyTorch reuses a name after destroy_process_group: the second group with that name is another group. All members
        must get the same name for it, including members that were not in the first group. If worlds look alike, a rank
        joins the first in which its rank is still free. `own` is the rank in a default group.
        """

        def fits(name: str) -> bool:
            known, world = self._world_of.get(name), self._now.get(rank)
            if known is None or self._ranks[name] != ranks:
                return self._ranks.get(name, ranks) == ranks
            return own not in known.members if own is not None else world is None or world is known

        mine = self._names.setdefault((rank, plain), [])
        names = (plain if number == 1 else f"{plain}'{number}" for number in count(1))
        mine.append(next(name for name in names if name not in mine and fits(name)))
        return mine[-1]

    def name(self, rank: int, plain: str) -> str:
        """Return the lab's name for the group that currently has PyTorch's name on a rank."""
        return self._names.get((rank, plain), [plain])[-1]

    def global_rank(self, group: str, rank: Any) -> int | None:
        """Return the global rank of a rank within a group."""
        if not isinstance(rank, int) or not 0 <= rank < MOST_RANKS:
            return None
        known = self._trace.groups.get(group)
        return known.ranks[rank] if known is not None and rank < len(known.ranks) else rank

    def set_members(self, rank: int, phase: Phase, members: Iterable[Any]) -> None:
        """Set the members of the group that a phase creates."""
        phase.members, world = tuple(parse_count(member, MOST_RANKS) for member in members), self._now.get(rank)
        if world is not None and world.settled:
            phase.members = world.ranks(phase.members)
        elif world is not None:
            world.pending.append(phase)

    def finish(self, ranks: Iterable[int]) -> None:
        """Settle worlds in which not all members have reported; call this after all lines are read.

        A missing member is assumed to be a rank of the run that is in no world, the lowest rank first.
        """
        worlds = dict.fromkeys(self._world_of.values())
        known_ranks = {rank for world in worlds for rank in world.members.values()}
        others = sorted(ranks, key=lambda rank: (rank in known_ranks, rank))
        for world in worlds:
            if not world.settled and world.differs():
                members = set(world.members.values())
                candidates = (rank for rank in chain(others, count(len(others))) if rank not in members)
                for missing in (rank for rank in range(world.size) if rank not in world.members):
                    world.members[missing] = next(candidates)
                self._settle(world)

    def _settle(self, world: _World) -> None:
        world.settled = True
        pending, world.pending = world.pending, []
        if not world.differs():
            return
        names = {name for name, of in self._world_of.items() if of is world}
        for name in names:
            self._trace.groups[name] = replace(self._trace.groups[name], ranks=world.ranks(self._ranks[name]))
        for phase in pending:
            phase.members = world.ranks(phase.members)
        for call in chain.from_iterable(reader.calls_so_far() for reader in self.readers):
            if call.group in names:
                call.root, call.peer = (one if one is None else world.ranks([one])[0] for one in (call.root, call.peer))
        self.changed = True


def clear_late(rank: RankTrace) -> None:
    """Unset `Call.late` for each call whose result was recorded in time after all."""
    for call in rank.calls:
        if call.late and call.via == call.op:
            wait = wait_after(rank, call)
            call.late = wait is not None and wait.end is not None and (call.end or 0.0) > wait.end


def wait_after(rank: RankTrace, call: Call) -> Phase | None:
    """Return the first wait of a rank after one of its calls began."""
    position = bisect_left(rank.waits, call.begin, key=attrgetter("begin"))
    return rank.waits[position] if position < len(rank.waits) else None


def read_trace(record: Record, most_bytes: float = math.inf) -> Trace:
    """Read the trace of a run; `Trace.problems` lists what is missing. Without any trace, all ranks are empty.

    If all files together are larger than `most_bytes`, read the end of each; see `lab.trace.read`.
    """
    expected, traced = sorted(record.ranks()), trace_files(record)
    trace = Trace(world_size=len(expected) or len(traced), ranks={}, groups={})
    worlds = Worlds(trace)
    ranks = sorted({*expected, *traced})
    readers = [RankReader(rank, record if rank in traced else None, trace, worlds) for rank in ranks]
    skip_beginnings(record, [reader.result for reader in readers], most_bytes)
    trace.clocks = align_clocks({reader.rank: reader.start for reader in readers if reader.start}, record)
    for reader in readers:
        reader.clock = trace.clocks.readings.get(reader.rank, reader.clock)
        trace.ranks[reader.rank] = reader.read()
    worlds.finish(trace.ranks)
    if trace.is_tail:
        align_tails(trace, record)
    trace.groups = model.label_groups(trace.groups)
    stops = [event for event in record.events() if isinstance(event, (TimedOut, Cancelled, Stack))]
    trace.stopped_s = min((one.time for one in stops if not isinstance(one, Stack)), default=math.inf) - trace.origin
    examined_s = min((one.time for one in stops), default=math.inf) - trace.origin
    for rank in trace.ranks.values():
        rank.calls = [call for call in rank.calls if call.begin <= trace.stopped_s]
        rank.phases = [phase for phase in rank.phases if phase.begin <= trace.stopped_s]
        reopen_calls(rank.calls, examined_s, trace.stopped_s)
        clear_late(rank)
    return trace


def trace_files(record: Record) -> set[int]:
    """Return the ranks that have a trace.

    Raises:
        RecordError: The folder of traces is not a folder.
    """
    matches = (re.fullmatch(r"rank(0|[1-9][0-9]*)\.jsonl", name) for name in list_names(record.path, TRACE))
    ranks = {rank for match in matches if match and (rank := int(match[1])) < MOST_RANKS}
    record_files.refuse_excess_ranks(record.path, TRACE, len(ranks))
    return ranks


def reopen_calls(calls: Iterable[Call], failed_after: float, ended_after: float = math.inf) -> None:
    """Mark calls as unfinished if they failed, or ended, only after a time at which the lab began to stop the ranks."""
    for call in calls:
        if call.end is not None and call.end > (failed_after if call.error else ended_after):
            call.end, call.error = None, ""


def open_trace(record: Record) -> Trace:
    """Read the trace of a run, for views that need one.

    Raises:
        RecordError: No rank left a trace.
    """
    trace = read_trace(record)
    if not trace.recorded:
        hint = "run it again without --no-trace, with a version of the lab that records"
        raise RecordError(f"run {record.run} has no trace", hint)
    return trace


def read_line(raw: bytes) -> dict[str, Any] | None:
    """Parse a line of a trace; return None if it is damaged."""
    line = parse_line(raw)
    return line if isinstance(line, dict) else None


class RankReader:
    """Reads the lines of one rank in order; without a record there is no trace to read."""

    def __init__(self, rank: int, record: Record | None, trace: Trace, worlds: Worlds) -> None:
        self.rank, self.record, self.trace = rank, record, trace
        self.result = RankTrace(rank=rank)
        self.clock = Reading()
        """Converts its times."""
        self.damaged = 0
        self.worlds = worlds
        worlds.readers.append(self)
        self.open: dict[int, Call] = {}
        self.nested: list[Phase] = []
        self._has_lines = False
        self.actions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._read_start, "group": self._read_group, "begin": self._read_begin, "end": self._read_end,
            "mark": self._read_phase, "cut": self._read_cut, "wait": self._read_wait, "store": self._read_store,
            "stop": lambda _: setattr(self.result, "stopped", True),
            "threads": lambda _: setattr(self.result, "threads", True),
            "exit": lambda line: setattr(self.result, "exited_at", str(line.get("at", ""))),
            "gc": lambda line: self.result.collections.append(self._collection_span(line)),
        }  # fmt: skip
        """Kind of a line -> its handler; other kinds are skipped."""
        self.at_end: list[Callable[[], None]] = []
        """Callbacks of features, called after all lines are read."""
        for extend in hooks("trace_lines"):
            extend(self)
        first = next(self._lines(), {}) if record is not None else {}
        self.start = first if first.get("k") == "start" else {}

    def read(self) -> RankTrace:
        """Read all lines of the rank's file, and report what is missing."""
        result, problems = self.result, self.trace.problems
        if self.record is None:
            problems.append(f"rank {self.rank} has no trace")
            return result
        self.damaged = 0
        for line in self._lines():
            self.add_line(line)
        for finish in self.at_end:
            finish()
        who = f"rank {self.rank}:"
        if not self.start:
            problems.append(f"{who} the trace has no beginning, so its times cannot be compared with other ranks'")
        if self.damaged:
            problems.append(f"{who} {format_count(self.damaged, 'line')} of its trace cannot be read")
        if not (result.stopped or result.dumped or result.cut):
            problems.append(f"{who} its trace ends before the worker did, or the worker was killed")
            self.trace.cut_short[self.rank] = problems[-1]
        return result

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Handle one line; count a line that no recorder wrote as damaged."""
        result = self.result
        try:
            if (action := self.actions.get(line.get("k", ""))) is None:
                return
            now = self.seconds(line)
            action(line)
        except DAMAGE:
            self.damaged += 1
            return
        result.first = min(result.first, now) if self._has_lines else now
        result.last = max(result.last, now)
        self._has_lines = True

    def _lines(self) -> Iterator[dict[str, Any]]:
        name = f"{TRACE}/{rank_trace(self.rank)}"
        try:
            with open_file(self.record.path, name, MOST_LINES_BYTES) as file:  # type: ignore[union-attr]
                skipped = self.result.skipped_bytes
                for raw in chain(read_kept_lines(file, skipped) if skipped else (), read_lines(file)):
                    if (line := read_line(raw)) is not None:
                        yield line
                    else:
                        self.damaged += 1
        except OSError as error:
            self.trace.problems.append(f"rank {self.rank}: its trace cannot be read: {error.strerror}")

    def seconds(self, line: Mapping[str, Any]) -> float:
        """Return when a line was written, in seconds."""
        return self.clock.nanoseconds(parse_count(line["t"])) / 1e9

    def _collection_span(self, line: Mapping[str, Any]) -> tuple[float, float]:
        return self.clock.nanoseconds(parse_count(line["t"]) - parse_count(line["took"])) / 1e9, self.seconds(line)

    def _read_start(self, line: Mapping[str, Any]) -> None:
        self.result.recorder, self.result.torch = str(line["recorder"]), str(line.get("torch", ""))

    def calls_so_far(self) -> Iterable[Call]:
        """Return all calls that were read."""
        return self.result.calls

    def _read_group(self, line: Mapping[str, Any]) -> None:
        self.worlds.add_group(self.rank, line, self.nested[-1].source if self.nested else "")

    def group_name(self, line: Mapping[str, Any]) -> str:
        """Return the lab's name for the group of a line."""
        return self.worlds.name(self.rank, str(line.get("g", "")))

    def _read_begin(self, line: Mapping[str, Any]) -> None:
        call = self.open[parse_count(line["i"])] = self._call(line)
        self.result.calls.append(call)

    def _call(self, line: Mapping[str, Any]) -> Call:
        group, at, by = self.group_name(line), str(line.get("at", "")), str(line.get("by", ""))
        is_inplace, splits = "out" not in line, line.get("split")
        inputs = parse_buffers(line.get("in", ()), line.get("iv"), line.get("is"))
        outputs = inputs if is_inplace else parse_buffers(line.get("out", ()), None, None)
        return Call(
            rank=self.rank,
            index=parse_count(line["i"]),
            op=str(line["op"]),
            group=group,
            seq=None if line.get("seq") is None else parse_count(line["seq"]),
            begin=self.seconds(line),
            asynchronous=bool(line.get("async")),
            late=bool(line.get("late")),
            reduce_op=str(line.get("red", "")),
            root=self.worlds.global_rank(group, line.get("root")),
            peer=self.worlds.global_rank(group, line.get("peer")),
            from_any=line.get("peer") == -1,
            tag=read_number(line, "tag"),
            inputs=inputs,
            outputs=outputs,
            is_inplace=is_inplace,
            bytes_in=read_number(line, "ib"),
            bytes_out=read_number(line, "ib" if is_inplace else "ob"),
            splits=(tuple(map(parse_count, splits[0])), tuple(map(parse_count, splits[1]))) if splits else None,
            source=at,
            function=str(line.get("fn", "")),
            via=str(line.get("via", "")),
            caller=by if by != at else "",  # a generator expression is called at its own line
            phase=self.nested[-1].name if self.nested else "",
        )

    def _read_end(self, line: Mapping[str, Any]) -> None:
        if (call := self.open.pop(parse_count(line["i"]), None)) is None:
            return  # the line of its begin is damaged
        call.end = self.seconds(line)
        if "peer" in line:
            call.peer = self.worlds.global_rank(call.group, line["peer"])
        call.error = str(line.get("err", ""))
        if call.is_inplace or "ov" in line or "os" in line:
            described = [(buffer.dtype, buffer.shape) for buffer in call.outputs]
            call.outputs = parse_buffers(described, line.get("ov"), line.get("os"))

    def _read_phase(self, line: Mapping[str, Any]) -> None:
        name, now = str(line["n"]), self.seconds(line)
        if not line.get("e"):
            phase = Phase(self.rank, name, now, source=str(line.get("at", "")))
            if name == "new_group" and str(line.get("g", "")).isdecimal():  # only members call other kinds of new_group
                self.worlds.set_members(self.rank, phase, line["ranks"])
            elif name == "destroy_process_group":
                phase.group = self.group_name(line)
            self.result.phases.append(phase)
            self.nested.append(phase)
            return
        for depth in range(len(self.nested) - 1, -1, -1):
            if self.nested[depth].name == name:
                self.nested[depth].end = now
                del self.nested[depth:]
                return

    def _read_wait(self, line: Mapping[str, Any]) -> None:
        if not line.get("e"):
            wait = Phase(self.rank, "wait", self.seconds(line), source=str(line.get("at", "")))
            wait.changed = self.seconds({"t": line["changed"]}) if "changed" in line else None
            self.result.waits.append(wait)
        else:
            model.end_last(self.result.waits, self.seconds(line))

    def _read_store(self, line: Mapping[str, Any]) -> None:
        if not line.get("e"):
            host, source = str(line.get("host", "")), str(line.get("at", ""))
            asked = read_number(line, "port"), read_number(line, "rank"), read_number(line, "world")
            self.result.stores.append(StoreLookup(host, *asked, source, self.seconds(line)))
        elif (ended := model.end_last(self.result.stores, self.seconds(line))) is not None:
            ended.error = str(line.get("err", ""))

    def _read_cut(self, line: Mapping[str, Any]) -> None:
        self.result.cut = str(line.get("why", "no reason given"))
        self.trace.problems.append(f"rank {self.rank}: recording ended early: {self.result.cut}")
