"""Follows the traces of a run in progress: the news of each poll, and the positions of its ranks.

A poll takes a bounded time, and memory is bounded, however many calls a run makes. If a rank is faster than that, part
of its trace is skipped; then its messages are left out, because only counting could match them.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import open_file
from lab.report.live import fit_columns
from lab.report.sanitize import sanitize_text
from lab.trace.model import Call, RankTrace, Trace, label_groups
from lab.trace.read import RankReader, Worlds, align_clocks, read_line, reopen_calls, trace_files
from lab.trace.steps import Step, match_steps
from lab.words import clip_end, format_duration, group_pairs, name_ranks

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


_LONGEST = 200
_MOST_POLLS = 32
"""What is still unread after this many polls is left for the next time."""
_WHEREABOUTS_BEHIND_BYTES = 256 << 10
"""If a rank writes more between two polls, only the end of its trace shows where it is."""
_WHEREABOUTS_KEPT_CALLS = 50
"""Limit for the completed calls of a rank."""


class RankPosition(NamedTuple):
    """The position of a rank."""

    rank: int
    what: str
    """The operation or the phase of a training step that it is in; `wait` for a handle; `ended`; empty: none."""
    source: str
    """`file:line` of the script; if it is in nothing, the line of its last call. Empty if unknown."""
    since: float
    """Unix time by the clock of the reader."""

    @property
    def words(self) -> str:
        """`all_reduce train.py:41`, `in no call since train.py:39`."""
        if self.what:
            return f"{self.what} {self.source}".rstrip()
        return f"in no call since {self.source}" if self.source else "no call yet"


class Whereabouts:
    """Follows the traces of a run in progress."""

    def __init__(self, record: Record) -> None:
        self._tail = TraceTail(record, _WHEREABOUTS_BEHIND_BYTES)

    def line(self, elapsed_s: float, columns: int, runs: Callable[[int], bool]) -> str:
        """Render the positions of running ranks in one line, after the elapsed time; empty if they are unknown."""
        trace = self._tail.trace
        for _ in range(_MOST_POLLS):
            is_behind = self._tail.poll()
            for rank in trace.ranks.values():
                old = rank.calls[:-_WHEREABOUTS_KEPT_CALLS]
                rank.calls[: len(old)] = [call for call in old if call.end is None and not call.has_handle]
            if not is_behind:
                break
        ranks = (rank for _, rank in sorted(trace.ranks.items()) if rank.recorded and not rank.cut and runs(rank.rank))
        positions = [_find_position(rank, trace.origin) for rank in ranks]
        return whereabouts_text(elapsed_s, positions, time.time(), columns) if positions else ""


def _find_position(trace: RankTrace, origin: float) -> RankPosition:
    if trace.stopped:
        return RankPosition(trace.rank, "ended", "", trace.last + origin)
    stays = sorted(_list_stays(trace), key=itemgetter(0))
    for begin, end, what, source in reversed(stays):
        if end is None:
            return RankPosition(trace.rank, clip_end(what, _LONGEST), clip_end(source, _LONGEST), begin + origin)
    source = next((source for *_, source in reversed(stays) if source), "")
    left = max((end for _, end, *_ in stays if end is not None), default=trace.first)
    return RankPosition(trace.rank, "", clip_end(source, _LONGEST), left + origin)


def _list_stays(trace: RankTrace) -> Iterator[tuple[float, float | None, str, str]]:
    """Yield begin, end, name, and source of everything that blocked a rank; a call with a handle lasts for no time."""
    for call in trace.calls:
        yield call.begin, call.begin if call.has_handle else call.end, call.op, call.source
    for phase in (*trace.phases, *trace.waits):
        yield phase.begin, phase.end, phase.name, phase.source
    if not any(phase.name == "init_process_group" and phase.end is None for phase in trace.phases):
        for lookup in trace.stores:
            yield lookup.begin, lookup.end, "TCPStore", lookup.source


_MIN_WAIT_S = 1.0


def whereabouts_text(elapsed_s: float, positions: Sequence[RankPosition], now: float, columns: int) -> str:
    """Render `… 12 s  rank 0: all_reduce train.py:41 (8 s) · rank 1: in no call since train.py:39 (3 s)`.

    Args:
        elapsed_s: The time since the run began.
        positions: In the order of ranks.
        now: Unix time.
        columns: The line is cut at this width.
    """
    items = []
    for words, group in group_pairs((position.words, position) for position in positions).items():
        took = now - min(position.since for position in group)
        waited = f" ({format_duration(round(took))})" if took >= _MIN_WAIT_S else ""
        items.append(f"{name_ranks(position.rank for position in group)}: {sanitize_text(words)}{waited}")
    return fit_columns(f"… {format_duration(round(elapsed_s))}  {' · '.join(items)}", columns)
