"""Follows the traces of a run that goes on: what is new at each look, and where its ranks are.

However much a run calls, a look takes a bounded time and what is kept is bounded; where a rank is faster than that,
a part of its trace is passed over, and then nothing is said of its messages, which only counting could match.
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
from lab.trace.model import Call, RankTrace, Trace, tell_apart
from lab.trace.read import RankReader, Worlds, align, read_line, reopen, trace_files
from lab.trace.steps import Step, match
from lab.words import clip_end, format_duration, name_ranks

_LOOK_BYTES = 512 << 10
"""Of all ranks together, at one look."""
_BEHIND_BYTES = 16 << 20
_LONGEST_LINE_BYTES = 64 << 20
_KEPT_STEPS = 60
_KEPT_CALLS = 800
"""Of all ranks together; so many steps that are over are kept in any case."""
_KEPT_MARKS = 50


class News(NamedTuple):
    """Something that a trace told."""

    time: float
    """Seconds, as in the trace."""
    kind: Literal["begin", "end", "hold"]
    call: Call


class TraceTail:
    """The end of the traces of a run, as far as they have been written.

    Args:
        record: of the run.
        behind_bytes: a rank of whose trace more is waiting is followed from near its end; None: 16 MiB.
    """

    def __init__(self, record: Record, behind_bytes: int | None = None) -> None:
        self.record = record
        self.behind_bytes = behind_bytes or _BEHIND_BYTES
        self.trace = Trace(world_size=0, ranks={}, groups={})
        self.news: list[News] = []
        """What the last look found, in the order of time."""
        self.stopped = math.inf
        """Unix time since which the lab stops the ranks."""
        self.passed_over = False
        """Whether a part of the traces was not read."""
        self.worlds = Worlds(self.trace)
        self._tails: dict[int, _RankTail] = {}
        self._forgotten = 0
        self._known: list[Step] | None = None

    @property
    def held(self) -> dict[int, Call]:
        """By rank: the call that it is held at."""
        return {rank: tail.held for rank, tail in self._tails.items() if tail.held is not None}

    def look(self) -> bool:
        """Take what is new, as much as can be taken in a moment; returns whether there is more."""
        for rank in sorted({*trace_files(self.record)} - self._tails.keys()):
            begun = self._tails[rank] = _RankTail(rank, self)
            self.trace.ranks[rank] = begun.result
            self.trace.world_size = len(self._tails)
        self.news, more = [], False
        share = _LOOK_BYTES // max(1, len(self._tails))
        for tail in self._tails.values():
            more |= tail.look(share)
            self.passed_over |= tail.passed_over
        self.news.sort(key=attrgetter("time"))
        return more

    def steps(self) -> list[Step]:
        """The steps that are known now; a rank that is held at its call is not in it yet."""
        if self._known is not None and not self.news and not self.worlds.changed:
            return self._known
        self.worlds.changed = False
        self._known = steps = self._steps()
        if sum(len(rank.calls) for rank in self.trace.ranks.values()) > 2 * _KEPT_CALLS:
            self._forget(steps)
        return steps

    def steps_ahead(self) -> list[Step]:
        """The steps that ranks are held at, with those who are inside already."""
        held = self.held
        if not held:
            return []
        ranks = {**self.trace.ranks}
        for rank, call in held.items():
            ranks[rank] = replace(ranks[rank], calls=[*ranks[rank].calls, call])
        waiting = {id(call) for call in held.values()}
        return [step for step in self._steps(ranks) if any(id(call) in waiting for call in step.calls.values())]

    def _steps(self, ranks: Mapping[int, Any] | None = None) -> list[Step]:
        known = replace(self.trace, groups=tell_apart(self.trace.groups), ranks=dict(ranks or self.trace.ranks))
        steps = match(known)
        for step in steps:
            step.number += self._forgotten
        return _certain(steps) if self.passed_over else steps

    def align(self, reader: RankReader) -> None:
        """Bring the clock of a rank whose first line has come to that of those before; the first one's is the run's."""
        starts = {tail.rank: tail.start for tail in self._tails.values() if tail.start}
        clocks, origin_s = align(starts, self.record), self.trace.origin
        self.trace.clocks = clocks._replace(origin_s=origin_s or clocks.origin_s)
        reading, later = clocks.readings.get(reader.rank, reader.clock), clocks.origin_s - self.trace.origin
        reader.clock = reading._replace(offset=reading.offset + round(later * 1e9))

    def _forget(self, steps: Sequence[Step]) -> None:
        """Drop steps that are over, each as a whole, so that the messages that are left still match."""
        over = [step for step in steps if step.end is not None]
        old = over[: -max(_KEPT_STEPS, _KEPT_CALLS // max(1, len(self._tails)))]
        gone = {id(call) for step in old for call in step.calls.values()}
        self._forgotten += len(old)
        for rank in self.trace.ranks.values():
            kept = [call for call in rank.calls if id(call) not in gone]
            if len(kept) > _KEPT_CALLS:  # calls that nobody answers
                kept, self.passed_over = kept[-_KEPT_CALLS:], True
            rank.calls[:] = kept


class _RankTail(RankReader):
    """The end of the trace of one rank."""

    def __init__(self, rank: int, whole: TraceTail) -> None:
        super().__init__(rank, None, whole.trace, whole.worlds)
        self._whole = whole
        self._position = 0
        self.held: Call | None = None
        self.passed_over = False
        taken = ("start", "group", "mark", "wait", "store", "cut", "stop")
        own = {"begin": self._begins, "end": self._ends, "hold": self._holds}
        self.actions = {**{kind: self.actions[kind] for kind in taken}, **own}

    def look(self, most_bytes: int) -> bool:
        """Take what is new; returns whether there is more."""
        try:
            with open_file(self._whole.record.path, f"{TRACE}/{rank_trace(self.rank)}") as file:
                size = file.seek(0, 2)
                if self.start and size - self._position > self._whole.behind_bytes:
                    self._pass_over(size - most_bytes)
                file.seek(self._position)
                text = file.read(most_bytes)
                while b"\n" not in text and most_bytes <= len(text) < _LONGEST_LINE_BYTES:
                    more = file.read(len(text))
                    if not more:
                        break
                    text += more
        except OSError:
            return False
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        for raw in whole.splitlines():
            line = read_line(raw)
            if line is not None:
                if line.get("k") == "start" and not self.start:
                    self.start = dict(line)
                    self._whole.align(self)
                self.take(line)
        for kept in (self.result.marks, self.result.waits, self.result.stores):
            del kept[:-_KEPT_MARKS]
        return bool(whole) and self._position < size

    def _pass_over(self, position: int) -> None:
        """Go on from there; what was open is not known to be over, so it is forgotten."""
        self._position, self.passed_over, self.held = position, True, None
        self.open.clear()
        self.nested.clear()
        for kept in (self.result.calls, self.result.marks, self.result.waits, self.result.stores):
            kept.clear()

    def calls_so_far(self) -> Iterable[Call]:
        """Every call that is kept, and the one that it is held at."""
        return self.result.calls if self.held is None else [*self.result.calls, self.held]

    def _begins(self, line: Mapping[str, Any]) -> None:
        self.held = None
        self._begin(line)
        call = self.result.calls[-1]
        self._whole.news.append(News(call.begin, "begin", call))

    def _ends(self, line: Mapping[str, Any]) -> None:
        call = self.open.get(line["i"])
        self._end(line)
        if call is not None:
            reopen([call], self._whole.stopped - self._whole.trace.origin)
        if call is not None and call.end is not None:
            self._whole.news.append(News(call.end, "end", call))

    def _holds(self, line: Mapping[str, Any]) -> None:
        self.held = self._call(line)
        self._whole.news.append(News(self.held.begin, "hold", self.held))


def _certain(steps: Sequence[Step]) -> list[Step]:
    """Those of which nobody's call can have been passed over: whoever is at a later collective was at this one."""
    reached: dict[tuple[str, int], int] = defaultdict(int)
    counted = [(step, step.seq) for step in steps if step.seq is not None]
    for step, seq in counted:
        for rank in step.calls:
            reached[step.group.name, rank] = max(reached[step.group.name, rank], seq)
    return [step for step, seq in counted if all(reached[step.group.name, rank] <= seq for rank in step.missing)]


_LONGEST = 200
_MOST_LOOKS = 32
"""What has not been read by then is for the next time."""
_WHEREABOUTS_BEHIND_BYTES = 256 << 10
"""A rank that writes more between two looks calls so much that only the end of it tells where it is."""
_WHEREABOUTS_KEPT_CALLS = 50
"""Of those of a rank that hold it up no more."""


class Place(NamedTuple):
    """Where a rank is."""

    rank: int
    what: str
    """The operation, or the phase of a training step, that it is in; `wait` for a handle; `ended`; empty: none."""
    source: str
    """`file:line` of the script; where it is in nothing, the line that it called from last. Empty: not known."""
    since: float
    """Unix time by the clock of whoever reads the record."""

    @property
    def words(self) -> str:
        """`all_reduce train.py:41`, `in no call since train.py:39`."""
        if self.what:
            return f"{self.what} {self.source}".rstrip()
        return f"in no call since {self.source}" if self.source else "no call yet"


class Whereabouts:
    """Follows the traces of a run that goes on."""

    def __init__(self, record: Record) -> None:
        self._tail = TraceTail(record, _WHEREABOUTS_BEHIND_BYTES)

    def line(self, elapsed_s: float, columns: int, runs: Callable[[int], bool]) -> str:
        """Where the ranks are that still run, in one line after the time of the run; empty where that is not known."""
        trace = self._tail.trace
        for _ in range(_MOST_LOOKS):
            more = self._tail.look()
            for rank in trace.ranks.values():
                old = rank.calls[:-_WHEREABOUTS_KEPT_CALLS]
                rank.calls[: len(old)] = [call for call in old if call.end is None and not call.hands_out]
            if not more:
                break
        known = (rank for _, rank in sorted(trace.ranks.items()) if rank.recorded and not rank.cut and runs(rank.rank))
        places = [_place(rank, trace.origin) for rank in known]
        return whereabouts_text(elapsed_s, places, time.time(), columns) if places else ""


def _place(trace: RankTrace, origin: float) -> Place:
    if trace.stopped:
        return Place(trace.rank, "ended", "", trace.last + origin)
    stays = sorted(_stays(trace), key=itemgetter(0))
    for begin, end, what, source in reversed(stays):
        if end is None:
            return Place(trace.rank, clip_end(what, _LONGEST), clip_end(source, _LONGEST), begin + origin)
    source = next((source for *_, source in reversed(stays) if source), "")
    left = max((end for _, end, *_ in stays if end is not None), default=trace.first)
    return Place(trace.rank, "", clip_end(source, _LONGEST), left + origin)


def _stays(trace: RankTrace) -> Iterator[tuple[float, float | None, str, str]]:
    """From when until when what held a rank up, or still does, and where; a call with a handle did for no time."""
    for call in trace.calls:
        yield call.begin, call.begin if call.hands_out else call.end, call.op, call.source
    for mark in (*trace.marks, *trace.waits):
        yield mark.begin, mark.end, mark.name, mark.source
    if not any(mark.name == "init_process_group" and mark.end is None for mark in trace.marks):
        for lookup in trace.stores:
            yield lookup.begin, lookup.end, "TCPStore", lookup.source


_WORTH_TELLING_S = 1.0


def whereabouts_text(elapsed_s: float, places: Sequence[Place], now: float, columns: int) -> str:
    """`… 12 s  rank 0: all_reduce train.py:41 (8 s) · rank 1: in no call since train.py:39 (3 s)`.

    Args:
        elapsed_s: how long the run takes already.
        places: in the order of ranks.
        now: Unix time.
        columns: what does not fit into so many is left out.
    """
    together: dict[str, list[Place]] = {}
    for place in places:
        together.setdefault(place.words, []).append(place)
    text, left = f"… {format_duration(round(elapsed_s))} ", len(together)
    for words, group in together.items():
        took = now - min(place.since for place in group)
        told = f" ({format_duration(round(took))})" if took >= _WORTH_TELLING_S else ""
        item = f"{name_ranks(place.rank for place in group)}: {sanitize_text(words)}{told}"
        longer = f"{text} · {item}" if left < len(together) else f"{text} {item}"
        room = columns - (len(f" · +{left}") if left > 1 else 0)
        if len(longer) > room and left < len(together):
            return fit_columns(f"{text} · +{left}", columns)
        text, left = longer, left - 1
    return fit_columns(text, columns)
