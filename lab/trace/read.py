"""Read the traces of a record; one that is cut short or damaged still opens and says what is missing."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from lab.errors import RecordError
from lab.feature import hooks
from lab.node.messages.agent import Stack
from lab.record.events import Cancelled, TimedOut
from lab.record.layout import MOST_RANKS, TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import MOST_LINES_BYTES, list_names, open_file, parse_line, read_lines, refuse_many_ranks
from lab.trace.alignment import Worlds, align
from lab.trace.model import (
    DAMAGE,
    Buffer,
    Call,
    Mark,
    RankTrace,
    Reading,
    StoreLookup,
    Trace,
    buffers,
    end_last,
    number,
    tell_apart,
    whole,
)
from lab.words import plural


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
    trace.groups = tell_apart(trace.groups)
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
    refuse_many_ranks(record.path, TRACE, len(ranks))
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
        self.groups = worlds.of(rank, self.calls_so_far)
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
        if not self.start:
            problems.append(
                f"rank {self.rank}: its trace has no beginning, so its times cannot be compared with other ranks'"
            )
        if self.damaged:
            problems.append(f"rank {self.rank}: {plural(self.damaged, 'line')} of its trace cannot be read")
        if not (result.stopped or result.dumped):
            problem = f"rank {self.rank}: its trace ends before the worker did, or the worker was killed"
            problems.append(problem)
            self.trace.cut_short[self.rank] = problem
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
        self.groups.take(line, self.nested[-1].source if self.nested else "")

    def _begin(self, line: Mapping[str, Any]) -> None:
        call = self.open[whole(line["i"])] = self._call(line)
        self.result.calls.append(call)

    def _call(self, line: Mapping[str, Any]) -> Call:
        group = self.groups.name(str(line.get("g", "")))
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
            root=self.groups.global_rank(group, line.get("root")),
            peer=self.groups.global_rank(group, line.get("peer")),
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
            call.peer = self.groups.global_rank(call.group, line["peer"])
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
                self.groups.tell_members(mark, line["ranks"])
            elif name == "destroy_process_group":
                mark.group = self.groups.name(str(line.get("g", "")))
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
            end_last(self.result.waits, self.seconds(line))

    def _store(self, line: Mapping[str, Any]) -> None:
        if not line.get("e"):
            host, source = str(line.get("host", "")), str(line.get("at", ""))
            asked = number(line, "port"), number(line, "rank"), number(line, "world")
            self.result.stores.append(StoreLookup(host, *asked, source, self.seconds(line)))
        elif (ended := end_last(self.result.stores, self.seconds(line))) is not None:
            ended.error = str(line.get("err", ""))

    def _cut(self, line: Mapping[str, Any]) -> None:
        self.result.cut = str(line.get("why", "no reason given"))
        self.trace.problems.append(f"rank {self.rank}: recording ended early: {self.result.cut}")

    def _stop(self, _: Mapping[str, Any]) -> None:
        self.result.stopped = True

    def _threads(self, _: Mapping[str, Any]) -> None:
        self.result.threads = True
