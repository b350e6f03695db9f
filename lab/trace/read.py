"""Read the traces of a record: what lines hold, the clocks and groups of all ranks brought together, and the calls.

A trace that is cut short or damaged still opens and says what is missing.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from operator import attrgetter
from typing import Any

from lab.errors import RecordError
from lab.feature import hooks
from lab.node.messages.agent import Stack
from lab.record.events import Cancelled, Clock, TimedOut
from lab.record.layout import MOST_RANKS, TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import MOST_LINES_BYTES, list_names, open_file, parse_line, read_lines, refuse_excess_ranks
from lab.trace import model
from lab.trace.model import Buffer, Call, Clocks, Group, Mark, RankTrace, Reading, StoreLookup, Trace
from lab.words import format_count

# -- what a line holds, taken out with its type: a script can write whatever it likes into its trace

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a line that no recorder wrote may raise where it is read."""
_LARGEST = 1 << 63
"""Times, sizes and counts from here on are damage."""
_GREATEST = 1e300
_NUMBERS = {int, float, bool}
_NON_FINITE = ("nan", "inf", "-inf")


def number(line: Mapping[str, Any], key: str) -> int:
    """A whole number of a line; 0 where there is none, or one that no recorder writes."""
    value = line.get(key)
    return int(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0


def whole(value: Any, most: int = _LARGEST) -> int:
    """A count, a time or an index.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not 0 <= value < most:
        raise ValueError(value)
    return value


def buffers(described: Any, values: Any, summaries: Any) -> tuple[Buffer, ...]:
    """Tensors, from their types and sizes, with what is known of their elements."""
    kept, summarised = chain(values or (), repeat(None)), chain(summaries or (), repeat(None))
    return tuple(
        Buffer(str(dtype), sizes(shape), _elements(elements), _summary(summary))
        for (dtype, shape), elements, summary in zip(described, kept, summarised, strict=False)
    )


def sizes(shape: Any) -> tuple[int, ...]:
    """The sizes of a tensor's dimensions.

    Raises:
        ValueError: no tensor is like that.
    """
    found = tuple(map(whole, shape))
    if len(found) > 1 and math.prod(found) >= _LARGEST:
        raise ValueError(found)
    return found


def _elements(found: Any) -> list[Any] | None:
    """The elements of a tensor: numbers, or pairs of them; None where they are not."""
    if not isinstance(found, list):
        return None
    if {*map(type, found)} <= _NUMBERS and abs(sum(found)) < _GREATEST:
        return found
    return found if all(_is_element(one) for one in found) else None


def _is_element(one: Any) -> bool:
    if isinstance(one, list):
        return len(one) == 2 and not any(isinstance(part, list) for part in one) and all(map(_is_element, one))
    return one in _NON_FINITE if isinstance(one, str) else type(one) in _NUMBERS and math.isfinite(one)


def _summary(found: Any) -> Mapping[str, Any] | None:
    """What is known of a tensor that was too large to be kept; None where it is not that."""
    if not isinstance(found, dict) or not isinstance(found.get("hash", ""), str):
        return None
    known = [found[name] for name in ("n", "norm", "min", "max", "sampled") if name in found]
    return found if _elements(known) is not None else None


# -- clocks, and which groups of different ranks are the same one

_DRIFT = 1e-4
"""Quartz clocks are within 50 µs a second of the truth, each of two."""


def align(starts: Mapping[int, Mapping[str, Any]], record: Record) -> Clocks:
    """The clocks of ranks, from the first lines of their traces.

    Ranks that share a clock share its error too; one of them tells the time of day for all, where it has no other.
    """
    if not starts:
        return Clocks()
    events = [*record.events()]
    told = [event for event in events if isinstance(event, Clock)]
    over = max((event.time for event in events), default=0.0)
    nodes, names = record.ranks(), {rank: str(start.get("boot", rank)) for rank, start in starts.items()}
    known: dict[str, tuple[Reading, float]] = {}
    for rank, start in starts.items():
        if names[rank] not in known:
            ours = [one for one in told if one.boot == names[rank] and one.monotonic_s]
            last = next((one for one in reversed(told) if one.node == nodes.get(rank)), None)
            known[names[rank]] = _line(ours, start, over) if ours else _by_the_day(start, last)
    origin = min(known[names[rank]][0].nanoseconds(number(start, "t")) for rank, start in starts.items())
    readings = {name: reading._replace(offset=reading.offset - origin) for name, (reading, _) in known.items()}
    errors = {rank: known[name][1] for rank, name in names.items()}
    return Clocks({rank: readings[name] for rank, name in names.items()}, origin / 1e9, names, errors)


def _by_the_day(start: Mapping[str, Any], clock: Clock | None) -> tuple[Reading, float]:
    """By the time of day that a rank told when its trace began, and how far that is off on its node."""
    offset_s, error_s = (clock.offset_s, clock.error_s) if clock is not None else (0.0, 0.0)
    offset = number(start, "wall") - number(start, "t") - int(offset_s * 1e9)
    within_s = number(start, "within") / 1e9 if "within" in start else model.SHARED_CLOCK_ERROR_S
    return Reading(offset), error_s + max(model.SHARED_CLOCK_ERROR_S, within_s)


def _line(told: Sequence[Clock], start: Mapping[str, Any], over: float) -> tuple[Reading, float]:
    """By exchanges: the best of them, or the line from the best of the begin to the best of the end."""
    best = min(told, key=lambda one: one.error_s)
    offset = _offset(best)
    began = (number(start, "t") + offset) / 1e9
    over = max(over, began)
    choices = [(Reading(offset), best.error_s + _DRIFT * max(abs(best.time - began), abs(over - best.time)))]
    middle = (min(one.time for one in told) + max(one.time for one in told)) / 2
    first, last = ([one for one in told if (one.time > middle) == late] for late in (False, True))
    if first and last:
        one, other = (min(some, key=lambda clock: clock.error_s) for some in (first, last))
        shown = round((other.monotonic_s - one.monotonic_s) * 1e9)
        drift = (_offset(other) - _offset(one)) / shown if shown > 0 else 0.0
        beyond_s = max(0.0, one.time - began, over - other.time)
        error_s = max(one.error_s, other.error_s) + 2 * _DRIFT * beyond_s
        if abs(drift) <= _DRIFT:
            choices.append((Reading(_offset(one), drift, round(one.monotonic_s * 1e9)), error_s))
    reading, error_s = min(choices, key=lambda choice: choice[1])
    return reading, error_s + model.SHARED_CLOCK_ERROR_S


def _offset(clock: Clock) -> int:
    """Nanoseconds to be added to its monotonic clock to have the lab's Unix time."""
    return round((clock.time - clock.monotonic_s) * 1e9)


@dataclass(eq=False)
class _World:
    """A default group whose members tell which rank they have in it."""

    size: int
    members: dict[int, int] = field(default_factory=dict)
    """PyTorch's rank -> rank of the run, of those who have been heard."""
    settled: bool = False
    marks: list[Mark] = field(default_factory=list)
    """Those with members, until it is settled."""

    def differs(self) -> bool:
        """Whether any rank in it is another one in the run, as far as is known."""
        return any(rank != known for rank, known in self.members.items())

    def ranks(self, told: Iterable[int]) -> tuple[int, ...]:
        """Ranks of the run, from PyTorch's."""
        return tuple(self.members.get(rank, rank) for rank in told)


class Worlds:
    """The groups of a trace, as all readers of it have heard of them."""

    def __init__(self, trace: Trace) -> None:
        self.changed = False
        """Whether calls that were read before have been brought to other ranks; who looks sets it back."""
        self.readers: list[RankReader] = []
        self._trace = trace
        self._ranks: dict[str, tuple[int, ...]] = {}
        """By name of a group: PyTorch's ranks of its members, as the first of them to be heard has it."""
        self._world_of: dict[str, _World] = {}
        """By name of a group: the one that it is in, where that is known."""
        self._now: dict[int, _World] = {}
        """By rank: the one that it is in now, where it told of that."""
        self._names: dict[tuple[int, str], list[str]] = {}
        """By rank and PyTorch's name: the names here of the groups that it had under it, the latest last."""

    def add_group(self, rank: int, line: Mapping[str, Any], source: str) -> None:
        """Take a `group` line of a rank."""
        ranks = tuple(whole(one, MOST_RANKS) for one in line["ranks"])
        if not ranks:
            raise ValueError(ranks)
        own = whole(line["rank"], len(ranks)) if "rank" in line else None
        world = self._now.get(rank)
        name = self._new_name(rank, str(line["g"]), ranks, own)
        if name not in self._ranks:
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
        """PyTorch gives a name again after destroy_process_group: the second group of that name is another group.

        All members have to come to the same name for it, also those that were not in the first one. Of worlds that are
        all alike, a rank is in the first in which nobody has its rank; `own` is that, where it is a default group.
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
        """The name here of the group that has PyTorch's name for a rank now."""
        return self._names.get((rank, plain), [plain])[-1]

    def global_rank(self, group: str, rank: Any) -> int | None:
        """Who has that rank in a group."""
        if not isinstance(rank, int) or not 0 <= rank < MOST_RANKS:
            return None
        known = self._trace.groups.get(group)
        return known.ranks[rank] if known is not None and rank < len(known.ranks) else rank

    def set_members(self, rank: int, mark: Mark, members: Iterable[Any]) -> None:
        """Tell a mark of a rank who is to be in the group that it makes."""
        mark.members, world = tuple(whole(one, MOST_RANKS) for one in members), self._now.get(rank)
        if world is not None and world.settled:
            mark.members = world.ranks(mark.members)
        elif world is not None:
            world.marks.append(mark)

    def finish(self, ranks: Iterable[int]) -> None:
        """All that there is was read: settle worlds of which not all members have been heard.

        Who is missing there is taken to be one of the run's ranks that were heard in no world, the lowest first.
        """
        worlds = dict.fromkeys(self._world_of.values())
        heard = {rank for world in worlds for rank in world.members.values()}
        others = sorted(ranks, key=lambda rank: (rank in heard, rank))
        for world in worlds:
            if not world.settled and world.differs():
                taken = set(world.members.values())
                left = (rank for rank in chain(others, count(len(others))) if rank not in taken)
                for missing in (rank for rank in range(world.size) if rank not in world.members):
                    world.members[missing] = next(left)
                self._settle(world)

    def _settle(self, world: _World) -> None:
        world.settled = True
        marks, world.marks = world.marks, []
        if not world.differs():
            return
        names = {name for name, of in self._world_of.items() if of is world}
        for name in names:
            self._trace.groups[name] = replace(self._trace.groups[name], ranks=world.ranks(self._ranks[name]))
        for mark in marks:
            mark.members = world.ranks(mark.members)
        for call in chain.from_iterable(reader.calls_so_far() for reader in self.readers):
            if call.group in names:
                call.root, call.peer = (one if one is None else world.ranks([one])[0] for one in (call.root, call.peer))
        self.changed = True


def clear_late(rank: RankTrace) -> None:
    """Unset `Call.late` of every call whose result was seen in time nevertheless."""
    for call in rank.calls:
        if call.late and call.via == call.op:
            wait = wait_after(rank, call)
            call.late = wait is not None and wait.end is not None and (call.end or 0.0) > wait.end


def wait_after(rank: RankTrace, call: Call) -> Mark | None:
    """The first wait of a rank after a call of its began."""
    place = bisect_left(rank.waits, call.begin, key=attrgetter("begin"))
    return rank.waits[place] if place < len(rank.waits) else None


def read_trace(record: Record) -> Trace:
    """The trace of a run; `Trace.problems` tells what is missing. A run without any trace has empty ranks."""
    expected, found = sorted(record.ranks()), trace_files(record)
    trace = Trace(world_size=len(expected) or len(found), ranks={}, groups={})
    worlds = Worlds(trace)
    ranks = sorted({*expected, *found})
    readers = [RankReader(rank, record if rank in found else None, trace, worlds) for rank in ranks]
    trace.clocks = align({reader.rank: reader.start for reader in readers if reader.start}, record)
    for reader in readers:
        reader.clock = trace.clocks.readings.get(reader.rank, reader.clock)
        trace.ranks[reader.rank] = reader.read()
    worlds.finish(trace.ranks)
    trace.groups = model.tell_apart(trace.groups)
    stopped = [event.time for event in record.events() if isinstance(event, (TimedOut, Cancelled, Stack))]
    for rank in trace.ranks.values():
        reopen(rank.calls, min(stopped, default=math.inf) - trace.origin)
        clear_late(rank)
    return trace


def trace_files(record: Record) -> set[int]:
    """The ranks that have a trace.

    Raises:
        RecordError: the folder of traces is none.
    """
    matches = (re.fullmatch(r"rank(0|[1-9][0-9]*)\.jsonl", name) for name in list_names(record.path, TRACE))
    ranks = {rank for match in matches if match and (rank := int(match[1])) < MOST_RANKS}
    refuse_excess_ranks(record.path, TRACE, len(ranks))
    return ranks


def reopen(calls: Iterable[Call], stopped: float) -> None:
    """Take the calls that failed since the lab stopped the ranks for what they were until then: unfinished."""
    for call in calls:
        if call.error and call.end is not None and call.end > stopped:
            call.end, call.error = None, ""


def open_trace(record: Record) -> Trace:
    """The trace of a run, for views that are nothing without one: where no rank left one, an error says so."""
    trace = read_trace(record)
    if not trace.recorded:
        hint = "run it again without --no-trace, with a version of the lab that records"
        raise RecordError(f"run {record.run} has no trace", hint)
    return trace


def read_line(raw: bytes) -> dict[str, Any] | None:
    """A line of a trace; None where it is damaged."""
    line = parse_line(raw)
    return line if isinstance(line, dict) else None


class RankReader:
    """Takes the lines of one rank, in order; without a record, it has no trace to read."""

    def __init__(self, rank: int, record: Record | None, trace: Trace, worlds: Worlds) -> None:
        self.rank = rank
        self.record = record
        self.trace = trace
        self.result = RankTrace(rank=rank)
        self.clock = Reading()
        """How its times are read."""
        self.damaged = 0
        self.worlds = worlds
        worlds.readers.append(self)
        self.open: dict[int, Call] = {}
        self.nested: list[Mark] = []
        self._seen = False
        self.actions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._start, "group": self._group, "begin": self._begin, "end": self._end,
            "mark": self._mark, "cut": self._cut, "stop": self._stop, "wait": self._wait,
            "store": self._store, "threads": self._threads,
            "gc": lambda line: self.result.collections.append(self._ending(line)),
        }  # fmt: skip
        """Kind of a line -> what takes it; lines of other kinds are passed over."""
        self.at_end: list[Callable[[], None]] = []
        """What features do once all lines were read."""
        for extend in hooks("trace_lines"):
            extend(self)
        first = next(self._lines(), {}) if record is not None else {}
        self.start = first if first.get("k") == "start" else {}

    def read(self) -> RankTrace:
        """Take every line of its file, and say what is missing."""
        result, problems = self.result, self.trace.problems
        if self.record is None:
            problems.append(f"rank {self.rank} has no trace")
            return result
        self.damaged = 0
        for line in self._lines():
            self.take(line)
        for finish in self.at_end:
            finish()
        who = f"rank {self.rank}:"
        if not self.start:
            problems.append(f"{who} its trace has no beginning, so its times cannot be compared with other ranks'")
        if self.damaged:
            problems.append(f"{who} {format_count(self.damaged, 'line')} of its trace cannot be read")
        if not (result.stopped or result.dumped):
            problems.append(f"{who} its trace ends before the worker did, or the worker was killed")
            self.trace.cut_short[self.rank] = problems[-1]
        return result

    def take(self, line: Mapping[str, Any]) -> None:
        """Take one line; one that no recorder wrote is counted."""
        result = self.result
        try:
            action = self.actions.get(line.get("k", ""))
            if action is None:
                return
            now = self.seconds(line)
            action(line)
        except DAMAGE:
            self.damaged += 1
            return
        result.first = min(result.first, now) if self._seen else now
        result.last = max(result.last, now)
        self._seen = True

    def _lines(self) -> Iterator[dict[str, Any]]:
        name = f"{TRACE}/{rank_trace(self.rank)}"
        try:
            with open_file(self.record.path, name, MOST_LINES_BYTES) as file:  # type: ignore[union-attr]
                for raw in read_lines(file):
                    line = read_line(raw)
                    if line is not None:
                        yield line
                    else:
                        self.damaged += 1
        except OSError as error:
            self.trace.problems.append(f"rank {self.rank}: its trace cannot be read: {error.strerror}")

    def seconds(self, line: Mapping[str, Any]) -> float:
        """When a line was written."""
        return self.clock.nanoseconds(whole(line["t"])) / 1e9

    def _ending(self, line: Mapping[str, Any]) -> tuple[float, float]:
        return self.clock.nanoseconds(whole(line["t"]) - whole(line["took"])) / 1e9, self.seconds(line)

    def _start(self, line: Mapping[str, Any]) -> None:
        self.result.recorder, self.result.torch = str(line["recorder"]), str(line.get("torch", ""))

    def calls_so_far(self) -> Iterable[Call]:
        """Every call that was taken."""
        return self.result.calls

    def _group(self, line: Mapping[str, Any]) -> None:
        self.worlds.add_group(self.rank, line, self.nested[-1].source if self.nested else "")

    def group_name(self, line: Mapping[str, Any]) -> str:
        """The name here of the group that a line is about."""
        return self.worlds.name(self.rank, str(line.get("g", "")))

    def _begin(self, line: Mapping[str, Any]) -> None:
        call = self.open[whole(line["i"])] = self._call(line)
        self.result.calls.append(call)

    def _call(self, line: Mapping[str, Any]) -> Call:
        group = self.group_name(line)
        in_place, splits = "out" not in line, line.get("split")
        inputs = buffers(line.get("in", ()), line.get("iv"), line.get("is"))
        outputs = inputs if in_place else buffers(line.get("out", ()), None, None)
        return Call(
            rank=self.rank,
            index=whole(line["i"]),
            op=str(line["op"]),
            group=group,
            seq=None if line.get("seq") is None else whole(line["seq"]),
            begin=self.seconds(line),
            asynchronous=bool(line.get("async")),
            late=bool(line.get("late")),
            reduce_op=str(line.get("red", "")),
            root=self.worlds.global_rank(group, line.get("root")),
            peer=self.worlds.global_rank(group, line.get("peer")),
            from_any=line.get("peer") == -1,
            tag=number(line, "tag"),
            inputs=inputs,
            outputs=outputs,
            in_place=in_place,
            bytes_in=number(line, "ib"),
            bytes_out=number(line, "ib" if in_place else "ob"),
            splits=(tuple(map(whole, splits[0])), tuple(map(whole, splits[1]))) if splits else None,
            source=str(line.get("at", "")),
            function=str(line.get("fn", "")),
            via=str(line.get("via", "")),
            phase=self.nested[-1].name if self.nested else "",
        )

    def _end(self, line: Mapping[str, Any]) -> None:
        call = self.open.pop(whole(line["i"]), None)
        if call is None:
            return  # its beginning was on a line that cannot be read
        call.end = self.seconds(line)
        if "peer" in line:
            call.peer = self.worlds.global_rank(call.group, line["peer"])
        if call.in_place:
            call.outputs = tuple(Buffer(buffer.dtype, buffer.shape) for buffer in call.outputs)
        call.error = str(line.get("err", ""))
        if "ov" in line or "os" in line:
            described = [[buffer.dtype, buffer.shape] for buffer in call.outputs]
            call.outputs = buffers(described, line.get("ov"), line.get("os"))

    def _mark(self, line: Mapping[str, Any]) -> None:
        name, now = str(line["n"]), self.seconds(line)
        if not line.get("e"):
            mark = Mark(self.rank, name, now, source=str(line.get("at", "")))
            if name == "new_group" and str(line.get("g", "")).isdecimal():  # others are made by their members alone
                self.worlds.set_members(self.rank, mark, line["ranks"])
            elif name == "destroy_process_group":
                mark.group = self.group_name(line)
            self.result.marks.append(mark)
            self.nested.append(mark)
            return
        for depth in range(len(self.nested) - 1, -1, -1):
            if self.nested[depth].name == name:
                self.nested[depth].end = now
                del self.nested[depth:]
                return

    def _wait(self, line: Mapping[str, Any]) -> None:
        if not line.get("e"):
            wait = Mark(self.rank, "wait", self.seconds(line), source=str(line.get("at", "")))
            wait.changed = self.seconds({"t": line["changed"]}) if "changed" in line else None
            self.result.waits.append(wait)
        else:
            model.end_last(self.result.waits, self.seconds(line))

    def _store(self, line: Mapping[str, Any]) -> None:
        if not line.get("e"):
            host, source = str(line.get("host", "")), str(line.get("at", ""))
            asked = number(line, "port"), number(line, "rank"), number(line, "world")
            self.result.stores.append(StoreLookup(host, *asked, source, self.seconds(line)))
        elif (ended := model.end_last(self.result.stores, self.seconds(line))) is not None:
            ended.error = str(line.get("err", ""))

    def _cut(self, line: Mapping[str, Any]) -> None:
        self.result.cut = str(line.get("why", "no reason given"))
        self.trace.problems.append(f"rank {self.rank}: recording ended early: {self.result.cut}")

    def _stop(self, _: Mapping[str, Any]) -> None:
        self.result.stopped = True

    def _threads(self, _: Mapping[str, Any]) -> None:
        self.result.threads = True
