"""Where each rank of a run is now: from its trace as far as it has been written, which is read on as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from lab.features.watch.tail import TraceTail
from lab.record.read import Record
from lab.report.harmless import harmless
from lab.report.live import fit
from lab.trace.model import RankTrace
from lab.words import clip, format_duration, name_ranks

_LONGEST = 200
_MOST_LOOKS = 32
"""What has not been read by then is for the next time."""
_BEHIND_BYTES = 256 << 10
"""A rank that writes more between two looks calls so much that only the end of it tells where it is."""
_KEPT_CALLS = 50
"""Of those of a rank that hold it up no more."""


@dataclass(frozen=True, slots=True)
class Place:
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
        self._tail = TraceTail(record, _BEHIND_BYTES)

    def line(self, elapsed_s: float, columns: int, runs: Callable[[int], bool]) -> str:
        """Where the ranks are that still run, in one line after the time of the run; empty where that is not known."""
        places = {rank: place for rank, place in self.look().items() if runs(rank)}
        return whereabouts_text(elapsed_s, places, time.time(), columns) if places else ""

    def look(self) -> dict[int, Place]:
        """By rank: where each is now; only those of whom a trace has arrived that still goes on, or came to its end."""
        for _ in range(_MOST_LOOKS):
            more = self._tail.look()
            for rank in self._tail.trace.ranks.values():
                open_ones = [call for call in rank.calls[:-_KEPT_CALLS] if call.end is None and not call.hands_out]
                rank.calls[:-_KEPT_CALLS] = open_ones
            if not more:
                break
        trace = self._tail.trace
        return {
            rank: _place(of_rank, trace.origin)
            for rank, of_rank in sorted(trace.ranks.items())
            if of_rank.recorded and not of_rank.cut
        }


class _Stay(NamedTuple):
    """A time that a rank spent, or spends, in something; seconds of the trace."""

    begin: float
    end: float | None
    what: str
    source: str


def _place(trace: RankTrace, origin: float) -> Place:
    if trace.stopped:
        return Place(trace.rank, "ended", "", trace.last + origin)
    stays = sorted(_stays(trace), key=attrgetter("begin"))
    inside = next((stay for stay in reversed(stays) if stay.end is None), None)
    if inside is not None:
        return Place(trace.rank, clip(inside.what, _LONGEST), clip(inside.source, _LONGEST), inside.begin + origin)
    source = next((stay.source for stay in reversed(stays) if stay.source), "")
    left = max((stay.end for stay in stays if stay.end is not None), default=trace.first)
    return Place(trace.rank, "", clip(source, _LONGEST), left + origin)


def _stays(trace: RankTrace) -> Iterator[_Stay]:
    """What held a rank up, or still does; a call that handed out a handle held it up for no time."""
    for call in trace.calls:
        yield _Stay(call.begin, call.begin if call.hands_out else call.end, call.op, call.source)
    for mark in (*trace.marks, *trace.waits):
        yield _Stay(mark.begin, mark.end, mark.name, mark.source)
    starting = any(mark.name == "init_process_group" and mark.end is None for mark in trace.marks)
    for lookup in trace.stores if not starting else ():
        yield _Stay(lookup.begin, lookup.end, "TCPStore", lookup.source)


_WORTH_TELLING_S = 1.0


def whereabouts_text(elapsed_s: float, places: Mapping[int, Place], now: float, columns: int) -> str:
    """`… 12 s  rank 0: all_reduce train.py:41 (8 s) · rank 1: in no call since train.py:39 (3 s)`.

    Args:
        elapsed_s: how long the run takes already.
        places: by rank.
        now: Unix time.
        columns: what does not fit into so many is left out.
    """
    together: dict[str, list[Place]] = {}
    for _, place in sorted(places.items()):
        together.setdefault(place.words, []).append(place)
    text, left = f"… {format_duration(round(elapsed_s))} ", len(together)
    for words, group in together.items():
        took = now - min(place.since for place in group)
        told = f" ({format_duration(round(took))})" if took >= _WORTH_TELLING_S else ""
        item = f"{name_ranks(place.rank for place in group)}: {harmless(words)}{told}"
        longer = f"{text} · {item}" if left < len(together) else f"{text} {item}"
        room = columns - (len(f" · +{left}") if left > 1 else 0)
        if len(longer) > room and left < len(together):
            return fit(f"{text} · +{left}", columns)
        text, left = longer, left - 1
    return fit(text, columns)
