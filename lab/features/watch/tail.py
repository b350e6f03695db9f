"""Follows the traces of a run in progress: the news of each poll.

A poll takes a bounded time, and memory is bounded, however many calls a run makes. If a rank is faster than that, part
of its trace is skipped; then its messages are left out, because only counting could match them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import open_file
from lab.trace.model import Call, Trace, label_groups
from lab.trace.read import RankReader, Worlds, align_clocks, read_line, reopen_calls, trace_files
from lab.trace.steps import Step, match_steps

_POLL_BYTES = 512 << 10
"""Limit for all ranks together, for one poll."""
_BEHIND_BYTES = 16 << 20
_LONGEST_LINE_BYTES = 64 << 20
_KEPT_STEPS = 60
_KEPT_CALLS = 800
"""Limit for all ranks together; this many completed steps are kept in any case."""
_KEPT_MARKS = 50


class News(NamedTuple):
    """A new event of a trace."""

    time: float
    """Seconds, as in the trace."""
    kind: Literal["begin", "end", "hold"]
    call: Call


class TraceTail:
    """The end of the traces of a run, as far as they have been written.

    Args:
        record: The record of the run.
        behind_bytes: If more of a rank's trace is unread, reading continues near its end; None: 16 MiB.
    """

    def __init__(self, record: Record, behind_bytes: int | None = None) -> None:
        self.record = record
        self.behind_bytes = behind_bytes or _BEHIND_BYTES
        self.trace = Trace(world_size=0, ranks={}, groups={})
        self.news: list[News] = []
        """The events of the last poll, in the order of time."""
        self.stopped = math.inf
        """Unix time from which on the lab stops the ranks."""
        self.passed_over = False
        """Whether a part of the traces was skipped."""
        self.worlds = Worlds(self.trace)
        self._tails: dict[int, _RankTail] = {}
        self._forgotten = 0
        self._known: list[Step] | None = None

    @property
    def held(self) -> dict[int, Call]:
        """The call that each held rank is held at."""
        return {rank: tail.held for rank, tail in self._tails.items() if tail.held is not None}

    def poll(self) -> bool:
        """Read new lines for a bounded time; return whether there is more."""
        for rank in sorted({*trace_files(self.record)} - self._tails.keys()):
            added = self._tails[rank] = _RankTail(rank, self)
            self.trace.ranks[rank] = added.result
            self.trace.world_size = len(self._tails)
        self.news, is_behind = [], False
        share = _POLL_BYTES // max(1, len(self._tails))
        for tail in self._tails.values():
            is_behind |= tail.poll(share)
            self.passed_over |= tail.passed_over
        self.news.sort(key=attrgetter("time"))
        return is_behind

    def steps(self) -> list[Step]:
        """Return the steps known so far; a call at which a rank is held is not in them."""
        if self._known is not None and not self.news and not self.worlds.changed:
            return self._known
        self.worlds.changed = False
        self._known = steps = self._steps()
        if sum(len(rank.calls) for rank in self.trace.ranks.values()) > 2 * _KEPT_CALLS:
            self._forget(steps)
        return steps

    def steps_ahead(self) -> list[Step]:
        """Return the steps at which ranks are held, with the calls of ranks that are inside already."""
        held = self.held
        if not held:
            return []
        ranks = {**self.trace.ranks}
        for rank, call in held.items():
            ranks[rank] = replace(ranks[rank], calls=[*ranks[rank].calls, call])
        waiting = {id(call) for call in held.values()}
        return [step for step in self._steps(ranks) if any(id(call) in waiting for call in step.calls.values())]

    def _steps(self, ranks: Mapping[int, Any] | None = None) -> list[Step]:
        trace = replace(self.trace, groups=label_groups(self.trace.groups), ranks=dict(ranks or self.trace.ranks))
        steps = match_steps(trace)
        for step in steps:
            step.number += self._forgotten
        return _select_certain(steps) if self.passed_over else steps

    def align_reader(self, reader: RankReader) -> None:
        """Align the clock of a rank, whose first line has come, with the other clocks; the first one is the run's."""
        starts = {tail.rank: tail.start for tail in self._tails.values() if tail.start}
        clocks, origin_s = align_clocks(starts, self.record), self.trace.origin
        self.trace.clocks = clocks._replace(origin_s=origin_s or clocks.origin_s)
        reading, later = clocks.readings.get(reader.rank, reader.clock), clocks.origin_s - self.trace.origin
        reader.clock = reading._replace(offset=reading.offset + round(later * 1e9))

    def _forget(self, steps: Sequence[Step]) -> None:
        """Drop completed steps, each as a whole, so that the remaining messages still match."""
        over = [step for step in steps if step.end is not None]
        old = over[: -max(_KEPT_STEPS, _KEPT_CALLS // max(1, len(self._tails)))]
        dropped = {id(call) for step in old for call in step.calls.values()}
        self._forgotten += len(old)
        for rank in self.trace.ranks.values():
            kept = [call for call in rank.calls if id(call) not in dropped]
            if len(kept) > _KEPT_CALLS:  # calls without a partner
                kept, self.passed_over = kept[-_KEPT_CALLS:], True
            rank.calls[:] = kept


class _RankTail(RankReader):
    """The end of the trace of one rank."""

    def __init__(self, rank: int, parent: TraceTail) -> None:
        super().__init__(rank, None, parent.trace, parent.worlds)
        self._parent = parent
        self._position = 0
        self.held: Call | None = None
        self.passed_over = False
        shared_kinds = ("start", "group", "mark", "wait", "store", "cut", "stop")
        own_actions = {"begin": self._begin_call, "end": self._end_call, "hold": self._hold_call}
        self.actions = {**{kind: self.actions[kind] for kind in shared_kinds}, **own_actions}

    def poll(self, most_bytes: int) -> bool:
        """Read new lines; return whether there is more."""
        try:
            with open_file(self._parent.record.path, f"{TRACE}/{rank_trace(self.rank)}") as file:
                size = file.seek(0, 2)
                if self.start and size - self._position > self._parent.behind_bytes:
                    self._pass_over(size - most_bytes)
                file.seek(self._position)
                text = file.read(most_bytes)
                while b"\n" not in text and most_bytes <= len(text) < _LONGEST_LINE_BYTES:
                    if not (chunk := file.read(len(text))):
                        break
                    text += chunk
        except OSError:
            return False
        lines = text[: text.rfind(b"\n") + 1]
        self._position += len(lines)
        for raw in lines.splitlines():
            if (line := read_line(raw)) is not None:
                if line.get("k") == "start" and not self.start:
                    self.start = dict(line)
                    self._parent.align_reader(self)
                self.add_line(line)
        for kept in (self.result.phases, self.result.waits, self.result.stores):
            del kept[:-_KEPT_MARKS]
        return bool(lines) and self._position < size

    def _pass_over(self, position: int) -> None:
        """Continue at a later position. Open calls may end in the skipped part, so they are dropped."""
        self._position, self.passed_over, self.held = position, True, None
        self.open.clear()
        self.nested.clear()
        for kept in (self.result.calls, self.result.phases, self.result.waits, self.result.stores):
            kept.clear()

    def calls_so_far(self) -> Iterable[Call]:
        """Return all kept calls, and the call at which the rank waits for a release."""
        return self.result.calls if self.held is None else [*self.result.calls, self.held]

    def _begin_call(self, line: Mapping[str, Any]) -> None:
        self.held = None
        self._read_begin(line)
        call = self.result.calls[-1]
        self._parent.news.append(News(call.begin, "begin", call))

    def _end_call(self, line: Mapping[str, Any]) -> None:
        call = self.open.get(line["i"])
        self._read_end(line)
        if call is not None:
            reopen_calls([call], self._parent.stopped - self._parent.trace.origin)
        if call is not None and call.end is not None:
            self._parent.news.append(News(call.end, "end", call))

    def _hold_call(self, line: Mapping[str, Any]) -> None:
        self.held = self._call(line)
        self._parent.news.append(News(self.held.begin, "hold", self.held))


def _select_certain(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without skipped calls: a rank at a later collective of a group took part in the earlier ones."""
    reached: dict[tuple[str, int], int] = defaultdict(int)
    counted = [(step, step.seq) for step in steps if step.seq is not None]
    for step, seq in counted:
        for rank in step.calls:
            reached[step.group.name, rank] = max(reached[step.group.name, rank], seq)
    return [step for step, seq in counted if all(reached[step.group.name, rank] <= seq for rank in step.missing)]
