"""Reading the traces of a record; one that is cut short or damaged still opens and says what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from lab.record.events import Clock
from lab.record.layout import TRACE
from lab.record.read import Record
from lab.trace.buckets import assign_buckets
from lab.trace.model import Buckets, Buffer, Call, Group, Mark, RankTrace, Trace

_SHARED_CLOCK_ERROR_S = 1e-6
"""Two reads of one clock by two processes."""


def read_trace(record: Record) -> Trace:
    """The trace of a run.

    What is missing or damaged is told in `Trace.problems`; a run without any trace has empty ranks.
    """
    expected = sorted(record.workers())
    paths = (record.path / TRACE).glob("rank*.jsonl")
    found = {int(match[1]): path for path in paths if (match := re.fullmatch(r"rank(\d+)\.jsonl", path.name))}
    trace = Trace(world_size=len(expected) or len(found), ranks={}, groups={}, origin=0.0, clock_error_s=0.0)
    readers = [_RankReader(rank, found.get(rank), trace) for rank in sorted({*expected, *found})]
    _align(readers, record, trace)
    for reader in readers:
        trace.ranks[reader.rank] = reader.read()
    for rank in trace.ranks.values():
        assign_buckets(rank)
    return trace


def _align(readers: list[_RankReader], record: Record, trace: Trace) -> None:
    """Give every reader the offset from its own clock to seconds since the first line of the run.

    Ranks whose nodes share a kernel share its monotonic clock: one of them tells the wall time for all. Other kernels
    are brought to the lab's clock by what the record says of them.
    """
    started = [reader for reader in readers if reader.start]
    if not started:
        return
    offsets = {event.node: (event.offset_s, event.error_s) for event in record.events() if isinstance(event, Clock)}
    nodes = record.workers()
    wall_of_kernel: dict[str, int] = {}
    errors = [_SHARED_CLOCK_ERROR_S]
    for reader in started:
        boot = str(reader.start.get("boot", reader.rank))
        if boot not in wall_of_kernel:
            offset, error = offsets.get(nodes.get(reader.rank, ""), (0.0, 0.0))
            wall_of_kernel[boot] = _number(reader.start, "wall") - _number(reader.start, "t") - int(offset * 1e9)
            errors.append(error)
        reader.wall = wall_of_kernel[boot]
    if len(wall_of_kernel) == 1:
        errors = [_SHARED_CLOCK_ERROR_S]
    origin = min(reader.wall + _number(reader.start, "t") for reader in started)
    for reader in readers:
        reader.origin = origin
    trace.origin = origin / 1e9
    trace.clock_error_s = max(errors) if len(errors) <= 2 else sum(sorted(errors)[-2:])


def _number(line: Mapping[str, Any], key: str) -> int:
    value = line.get(key)
    return int(value) if isinstance(value, (int, float)) else 0


class _RankReader:
    """Reads the lines of one rank."""

    def __init__(self, rank: int, path: Path | None, trace: Trace) -> None:
        self.rank = rank
        self.path = path
        self.trace = trace
        self.wall = 0
        """Nanoseconds to be added to the node's clock to have Unix time."""
        self.origin = 0
        self.damaged = 0
        self.groups: dict[str, list[str]] = {}
        """PyTorch's name of a group -> the names here of the groups that this rank had under it, the latest last."""
        self.start: dict[str, Any] = {}
        self.open: dict[int, Call] = {}
        """Calls that have not ended."""
        self.names: dict[int, list[tuple[str, int]]] = {}
        """DDP module -> name and number of elements of its parameters."""
        self.marks: list[list[Any]] = []
        """Marks in the order of their beginning: name, begin, end, source."""
        self.nested: list[list[Any]] = []
        """Those that have not ended."""
        if path is not None:
            for line in self._lines():
                if line.get("k") == "start":
                    self.start = line
                break

    def read(self) -> RankTrace:
        result = RankTrace(rank=self.rank)
        if self.path is None:
            self.trace.problems.append(f"rank {self.rank} has no trace")
            return result
        self.damaged = 0
        actions = {
            "start": self._start, "group": self._group, "begin": self._begin, "end": self._end,
            "mark": self._mark, "ddp": self._ddp, "cut": self._cut, "stop": self._stop,
        }  # fmt: skip
        seen = False
        for line in self._lines():
            action = actions.get(line.get("k", ""))
            if action is None:
                continue
            try:
                action(line, result)
            except (KeyError, TypeError, ValueError, IndexError):
                self.damaged += 1
                continue
            now = self._seconds(line)
            result.first = min(result.first, now) if seen else now
            result.last = max(result.last, now)
            seen = True
        result.marks = [Mark(self.rank, name, begin, end, source) for name, begin, end, source in self.marks]
        if not self.start:
            self.trace.problems.append(f"rank {self.rank}: its trace has no beginning, so its times are only its own")
        if self.damaged:
            lines = "1 line" if self.damaged == 1 else f"{self.damaged} lines"
            self.trace.problems.append(f"rank {self.rank}: {lines} of its trace cannot be read")
        if not result.stopped:
            problem = "its trace ends before the worker did, or the worker was killed"
            self.trace.problems.append(f"rank {self.rank}: {problem}")
        return result

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:  # type: ignore[union-attr]
                for raw in file:
                    try:
                        line = json.loads(raw)
                    except ValueError:
                        self.damaged += 1
                        continue
                    if isinstance(line, dict):
                        yield line
                    else:
                        self.damaged += 1
        except OSError as error:
            self.trace.problems.append(f"rank {self.rank}: its trace cannot be read: {error.strerror}")

    def _seconds(self, line: Mapping[str, Any]) -> float:
        if not self.start:
            return _number(line, "t") / 1e9
        return (_number(line, "t") + self.wall - self.origin) / 1e9

    def _start(self, line: Mapping[str, Any], result: RankTrace) -> None:
        result.recorder, result.torch = str(line["recorder"]), str(line.get("torch", ""))
        result.boot = str(line.get("boot"))

    def _group(self, line: Mapping[str, Any], result: RankTrace) -> None:
        ranks = tuple(int(rank) for rank in line["ranks"])
        name = self._new_name(str(line["g"]), ranks)
        backend, description = str(line.get("backend", "")), str(line.get("desc", ""))
        self.trace.groups.setdefault(name, Group(name, ranks, backend, description))

    def _new_name(self, plain: str, ranks: tuple[int, ...]) -> str:
        """PyTorch gives a name again after destroy_process_group: the second group of that name is another group.

        All members have to come to the same name for it, also those that were not in the first one.
        """
        mine, known = self.groups.setdefault(plain, []), self.trace.groups
        names = (plain if number == 1 else f"{plain}'{number}" for number in count(1))
        name = next(name for name in names if name not in mine and (name not in known or known[name].ranks == ranks))
        mine.append(name)
        return name

    def _name(self, plain: str) -> str:
        return self.groups[plain][-1] if plain in self.groups else plain

    def _global(self, group: str, rank: Any) -> int | None:
        if not isinstance(rank, int) or rank < 0:
            return None
        known = self.trace.groups.get(group)
        return known.ranks[rank] if known is not None and rank < len(known.ranks) else rank

    def _begin(self, line: Mapping[str, Any], result: RankTrace) -> None:
        group = self._name(str(line.get("g", "")))
        in_place = "out" not in line
        splits = line.get("split")
        inputs = _buffers(line.get("in", ()), line.get("iv"), line.get("is"))
        outputs = inputs if in_place else _buffers(line.get("out", ()), None, None)
        bytes_in = _number(line, "ib")
        call = Call(
            rank=self.rank,
            index=int(line["i"]),
            op=str(line["op"]),
            group=group,
            seq=line.get("seq"),
            begin=self._seconds(line),
            asynchronous=bool(line.get("async")),
            reduce_op=str(line.get("red", "")),
            root=self._global(group, line.get("root")),
            peer=self._global(group, line.get("peer")),
            tag=_number(line, "tag"),
            inputs=inputs,
            outputs=outputs,
            in_place=in_place,
            bytes_in=bytes_in,
            bytes_out=bytes_in if in_place else _number(line, "ob"),
            splits=(tuple(splits[0]), tuple(splits[1])) if splits else None,
            source=str(line.get("at", "")),
            function=str(line.get("fn", "")),
            via=str(line.get("via", "")),
            phase=self.nested[-1][0] if self.nested else "",
        )
        self.open[call.index] = call
        result.calls.append(call)

    def _end(self, line: Mapping[str, Any], result: RankTrace) -> None:
        call = self.open.pop(int(line["i"]), None)
        if call is None:
            return  # its beginning was on a line that cannot be read
        call.end = self._seconds(line)
        if "peer" in line:
            call.peer = self._global(call.group, line["peer"])
        if call.in_place:
            call.outputs = tuple(Buffer(buffer.dtype, buffer.shape) for buffer in call.outputs)
        call.error = str(line.get("err", ""))
        if "ov" in line or "os" in line:
            described = [[buffer.dtype, buffer.shape] for buffer in call.outputs]
            call.outputs = _buffers(described, line.get("ov"), line.get("os"))

    def _mark(self, line: Mapping[str, Any], result: RankTrace) -> None:
        name, now = str(line["n"]), self._seconds(line)
        if not line.get("e"):
            mark = [name, now, None, str(line.get("at", ""))]
            self.marks.append(mark)
            self.nested.append(mark)
            return
        for depth in range(len(self.nested) - 1, -1, -1):
            if self.nested[depth][0] == name:
                self.nested[depth][2] = now
                del self.nested[depth:]
                return

    def _ddp(self, line: Mapping[str, Any], result: RankTrace) -> None:
        module = int(line["d"])
        if "params" in line:
            self.names[module] = [
                (str(name), Buffer(str(dtype), tuple(shape)).count) for name, dtype, shape in line["params"]
            ]
        known = self.names.get(module, [])
        buckets = line["buckets"]
        result.buckets.append(
            Buckets(
                rank=self.rank,
                module=module,
                group=self._name(str(line.get("g", ""))),
                time=self._seconds(line),
                rebuilt=bool(line.get("rebuilt")),
                buckets=tuple(tuple(known[i][0] for i in bucket) for bucket in buckets),
                sizes=tuple(sum(known[i][1] for i in bucket) for bucket in buckets),
            )
        )

    def _cut(self, line: Mapping[str, Any], result: RankTrace) -> None:
        result.cut = str(line.get("why", "no reason given"))
        self.trace.problems.append(f"rank {self.rank}: recording ended early: {result.cut}")

    def _stop(self, line: Mapping[str, Any], result: RankTrace) -> None:
        result.stopped = True


def _buffers(described: Any, values: Any, summaries: Any) -> tuple[Buffer, ...]:
    """What is said of tensors."""
    buffers = []
    for i, (dtype, sizes) in enumerate(described):
        kept = values[i] if values and i < len(values) else None
        summary = summaries[i] if summaries and i < len(summaries) else None
        buffers.append(
            Buffer(
                dtype=str(dtype),
                shape=tuple(int(size) for size in sizes),
                values=kept if isinstance(kept, list) else None,
                summary=summary if isinstance(summary, dict) else None,
            )
        )
    return tuple(buffers)
