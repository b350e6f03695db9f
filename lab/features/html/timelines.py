"""Timelines of a run: the data of the page's, and one as a still picture."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from lab.feature import view
from lab.features.calls.notation import render_call
from lab.features.html.write import fill
from lab.features.stragglers.timing import Piece, blocked_spans, ready_at, unseen_calls
from lab.features.timeline.lanes import rows_of
from lab.features.timeline.svg import operation_tones
from lab.features.traffic.traffic import size_of
from lab.node.messages.agent import Exited, Note, Started
from lab.operations import operation
from lab.record.events import Fault
from lab.record.read import Record
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.steps import Step
from lab.words import clip, format_bytes, format_duration, format_moment, format_value, name_ranks

Line = dict[str, Any]
_LONGEST_WORDS = 300


class Names(dict[str, int]):
    """Words, each kept once, with their indices."""

    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self))


def columns(lines: Iterable[Line], names: Names) -> dict[str, list[Any]]:
    """Lines with the same keys, turned into columns of what they have under each."""
    result: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        for key, value in line.items():
            result[key].append(names[value] if isinstance(value, str) else value)
    result["begin"] = [begin - before for before, begin in pairwise([0, *result["begin"]])]
    return result


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)


def call_lines(trace: Trace, steps: Iterable[Step], path: Collection[tuple[int, int]] = ()) -> Iterator[Line]:
    """A line for each call, rank by rank, in the order in which they began; `wait` is the time it waited for others.

    It held its rank up from `held` after its beginning (-1: it did not; -2: nobody can say) until `freed` before its
    end. The critical path, given as ranks with indices of their calls, leads through those with `path`.
    """
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for step in steps:
        waited = step.waited
        for rank, call in step.calls.items():
            places[rank, call.index] = step.number, microseconds(waited[rank]) if rank in waited else -1
    for rank in sorted(trace.ranks):
        calls, spans = trace.ranks[rank].calls, blocked_spans(trace.ranks[rank])
        unseen = {call.index for call in unseen_calls(trace.ranks[rank])}
        for call, row in zip(calls, rows_of(calls), strict=True):
            number, wait = places.get((rank, call.index), (0, 0))
            begin, end = spans.get(call.index, (None, None))
            yield {
                "rank": rank,
                "begin": microseconds(call.begin),
                "dur": _between(call.begin, call.end),
                "row": row,
                "wait": wait,
                "held": -2 if call.index in unseen else _between(call.begin, begin),
                "freed": 0 if end is None or call.end is None else _between(end, call.end),
                "path": int((rank, call.index) in path),
                "step": number,
                "op": call.op,
                "at": call.source,
                "via": call.via,
                "phase": call.phase,
                "bytes": call.bytes,
                "async": int(call.asynchronous),
                "error": call.error,
                "bucket": -1 if call.bucket is None else call.bucket,
                "params": clip(", ".join(call.parameters), _LONGEST_WORDS),
            }


def step_lines(steps: Iterable[Step], wrong: Collection[int] = ()) -> Iterator[Line]:
    """A line for each step; those of the numbers in `wrong` have a wrong result.

    `last` is the rank that the others had to wait for, `ready` the time until it entered.
    """
    for step in steps:
        late, begin = step.late, step.begin
        sender = step.source if step.message else None
        yield {
            "begin": microseconds(begin),
            "ready": _between(begin, late.begin if late else None),
            "dur": _between(begin, step.end),
            "last": late.rank if late else -1,
            "title": step.title,
            "round": step.round or 0,
            "sender": -1 if sender is None else sender,
            "state": step.state,
            "wrong": int(step.number in wrong),
            "bytes": size_of(step),
            "missing": step.missing,
        }


def _between(begin: float, end: float | None) -> int:
    return -1 if end is None else max(0, microseconds(end) - microseconds(begin))


_LONGEST_NOTE = 200
_MOST_NOTES = 5000


def origin_of(record: Record, traced: float) -> float:
    """Unix time at which the page's clock is 0: that of the trace; without one, the start of the first worker."""
    return traced or min((event.time for event in record.events() if isinstance(event, Started)), default=0.0)


def moments(record: Record, origin: float) -> tuple[dict[int, Line], list[Line], list[Line]]:
    """The life of each rank, notes, and faults; times in microseconds."""
    lives: dict[int, Line] = defaultdict(dict)
    notes: list[Line] = []
    faults: list[Line] = []
    nodes, facts = record.ranks(), [*record.events()]
    find_detections = view("detections")
    detections = iter(find_detections(facts) if find_detections else ())
    for event in facts:
        t = microseconds(event.time - origin)
        if isinstance(event, Started):
            lives[event.rank]["begin"] = t
        elif isinstance(event, Exited):
            lives[event.rank].update(end=t, bad=ended_badly(event), text=end_text(event))
        elif isinstance(event, Note) and len(notes) < _MOST_NOTES:
            notes.append({"begin": t, "rank": event.rank, "text": note_text(event)})
        elif isinstance(event, Fault):
            ranks = [rank for rank, node in nodes.items() if node == event.node]
            ranks = ranks or ([] if event.rank is None else [event.rank])
            detection = next(detections, None)
            healed = None if detection is None else detection.healed
            until = None if healed is None else microseconds(healed - origin)
            text = event.fault if detection is None else detection.brief
            faults.append({"t": t, "until": until, "ranks": ranks or None, "text": text})
    return lives, notes, faults


def note_text(note: Note) -> str:
    """What a script noted."""
    return f"{note.name} = {format_value(note.value, _LONGEST_NOTE)}"


def ended_badly(event: Exited) -> bool:
    """Whether a worker ended, and not as it should."""
    return not event.stopped and bool(event.code or event.signal)


def end_text(event: Exited) -> str:
    """How a worker ended, in a few words."""
    if event.stopped:
        return "stopped by the lab"
    if event.out_of_memory:
        return "killed: out of memory"
    if event.signal:
        return f"killed by {event.signal}"
    return f"exit {event.code}{f': {event.error}' if event.error else ''}"


_PHASES = {"forward": "#3f78c9", "backward": "#cc7a29", "loss": "#9360c4", "step": "#3d9455", "zero_grad": "#7d858f"}
"""Their colours."""
_OTHER_PHASE = "#838a94"


def run_data(
    record: Record,
    trace: Trace,
    steps: Sequence[Step],
    *,
    lanes: Sequence[Sequence[int]],
    origin: float,
    path: Sequence[Piece] = (),
    wrong: Collection[int] = (),
    logs: Iterable[tuple[int, float, int]] = (),
) -> dict[str, Any]:
    """Everything that a timeline shows, times in microseconds; `model.js` reads it.

    Args:
        record: of the run.
        trace: what its ranks called.
        steps: the same, put together.
        lanes: the ranks of each lane, those without a trace too; see `lanes_of`.
        origin: Unix time of the page's time 0.
        path: the critical path, if it is known.
        wrong: numbers of steps whose result is not what it should be.
        logs: rank, Unix time and stream of each line of the log.
    """
    names = Names()
    lives, notes, faults = moments(record, origin)
    traced = [own for _, own in sorted(trace.ranks.items())]
    on_path = {(piece.rank, piece.call.index) for piece in path if piece.within and piece.call is not None}
    ops = sorted({call.op for own in traced for call in own.calls})
    marks = (  # outer phases before those inside; one that never ended lasts to the end
        {"rank": own.rank, "begin": microseconds(mark.begin), "dur": _between(mark.begin, end), "name": mark.name}
        for own in traced
        for mark in own.marks
        for end in (own.last if mark.end is None else mark.end,)
    )
    printed = ({"rank": rank, "begin": microseconds(time - origin), "stream": stream} for rank, time, stream in logs)
    ranks: list[Line] = []
    for rank in sorted(rank for lane in lanes for rank in lane):
        own, line = trace.ranks.get(rank), {"rank": rank, "life": lives.get(rank, {}), "from": 0, "to": 0}
        if own is not None and own.recorded:  # from when to when its time is known
            line.update({"from": microseconds(ready_at(own)), "to": microseconds(own.last)})
        if trace.clocks.several:  # by how much its times may be off
            line["off"] = microseconds(trace.clocks.errors.get(rank, 0.0))
        ranks.append(line)
    return {
        "span": [
            min([0, *(life.get("begin", 0) for life in lives.values())]),
            max([microseconds(trace.last), *(life.get("end", 0) for life in lives.values()), 1]),
        ],
        "ranks": ranks,
        "lanes": lanes,
        "calls": columns(call_lines(trace, steps, on_path), names),
        "steps": columns(step_lines(steps, wrong), names),
        "marks": columns(marks, names),
        "logs": columns(printed, names),
        "notes": notes,
        "faults": faults,
        "path": [path[0].rank, *map(microseconds, (path[0].begin, path[-1].end))] if path else None,
        "phases": {mark.name: _PHASES.get(mark.name, _OTHER_PHASE) for own in traced for mark in own.marks},
        "colours": {op: operation_tones(operation(op)) for op in ops},
        "names": list(names),
    }


# -- the still picture

_WIDTH = 900
_LEFT, _BAR, _MARK, _GAP, _AXIS = 64.0, 16.0, 11.0, 9.0, 24.0
_LETTER = 5.6
_LEAST_ERROR = 1.5
"""Pixels: where less is uncertain it cannot be seen."""
_CUT_WIDTH = 18.0
"""Pixels of a pause that was cut."""
_LONG = 0.08
"""A pause is long if it takes more than this part of the time in which something happens."""
_ABOUT = 8
"""Ticks on an axis."""
_NARROW = 2.0
"""Least width of a bar, in pixels; narrower ones that touch are drawn as one."""
_SETTING_UP = frozenset({"DDP()"})
"""Phases whose length says more about imports than about the run: the axis may be cut in them."""
_HIDDEN_MARKS = frozenset({"init_process_group", "new_group", "destroy_process_group"})


class AxisPiece(NamedTuple):
    """A stretch of seconds in which something happens, and its place in pixels."""

    begin: float
    end: float
    left: float
    right: float


class Axis:
    """From seconds to pixels: the stretches in which something happened; long pauses are cut."""

    def __init__(self, busy: Iterable[tuple[float, float]], left: float, right: float) -> None:
        stretches = _merge(busy, 0.0) or [(0.0, 0.0)]
        kept = _merge(stretches, _LONG * sum(end - begin for begin, end in stretches))
        total = sum(end - begin for begin, end in kept)
        width = right - left - _CUT_WIDTH * (len(kept) - 1)
        self.pieces: list[AxisPiece] = []
        """Between them lie the pauses that were cut."""
        for begin, end in kept:
            share = width * ((end - begin) / total if total else 1 / len(kept))
            self.pieces.append(AxisPiece(begin, end, left, left + share))
            left += share + _CUT_WIDTH

    def place(self, time: float) -> float:
        """Pixels at a moment; moments before and after the run are at its ends, moments within a cut in its middle."""
        at = bisect_right(self.pieces, time, key=itemgetter(0)) - 1
        if at < 0:
            return self.pieces[0].left
        begin, end, left, right = self.pieces[at]
        if time <= end:
            return left + ((time - begin) / (end - begin) if end > begin else 0.0) * (right - left)
        return right if at + 1 == len(self.pieces) else (right + self.pieces[at + 1].left) / 2

    def ticks(self) -> list[float]:
        """Round moments to write on the axis, in seconds, of which all lie in pieces."""
        total = sum(piece.end - piece.begin for piece in self.pieces)
        if total <= 0:
            return [self.pieces[0].begin]
        power = 10.0 ** math.floor(math.log10(total / _ABOUT))
        step = next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= total / _ABOUT)
        first_and_last = ((math.ceil(piece.begin / step), math.floor(piece.end / step)) for piece in self.pieces)
        return [number * step for first, last in first_and_last for number in range(first, last + 1)]


def _merge(stretches: Iterable[tuple[float, float]], pause: float) -> list[tuple[float, float]]:
    """Stretches put together where no longer pause lies between them."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if merged and begin - merged[-1][1] <= pause:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


@dataclass(slots=True)
class Bar:
    """One call, or several that are too short to be told apart."""

    calls: list[Call]
    end: float
    """Seconds; where a call never ended, the end of the run."""
    left: float
    """Pixels."""
    right: float


def make_rows(rank: RankTrace, axis: Axis, last: float) -> list[list[Bar]]:
    """The bars of a rank, row by row; calls that never ended last until `last`, in seconds."""
    numbers = rows_of(rank.calls)
    rows: list[list[Bar]] = [[] for _ in range(max(numbers, default=-1) + 1)]
    for call, number in zip(rank.calls, numbers, strict=True):
        end = max(last if call.end is None else call.end, call.begin)
        left = axis.place(call.begin)
        bar = Bar([call], end, left, max(axis.place(end), left + _NARROW))
        former = rows[number][-1] if rows[number] else None
        if former and bar.left < former.right + 0.5 and bar.right - former.left <= 2 * _NARROW:
            former.calls.append(call)
            former.end, former.right = max(former.end, end), max(former.right, bar.right)
            continue
        if former:
            bar.left = max(bar.left, min(former.right + 0.5, bar.right - 1))
        rows[number].append(bar)
    return rows


def timeline_svg(
    trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], *, until: float = 0.0, prefix: str
) -> str:
    """The timeline of a run as a still picture; empty where no rank called anything.

    Args:
        trace: of the run.
        steps: its calls, put together.
        lanes: the ranks of each lane, of which the first is shown; see `lanes_of`.
        until: seconds until which ranks are known to have been alive; calls that never ended last as long.
        prefix: begins the names of what the picture defines, which are to be unique in a page.
    """
    if not any(trace.ranks[lane[0]].calls for lane in lanes):
        return ""
    return _Still(trace, steps, lanes, max(trace.last, until)).render(prefix)


class _Still:
    """Where everything stands in the picture; `still.html.j2` draws it."""

    def __init__(self, trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], last: float) -> None:
        self._trace, self._lanes, self._last = trace, lanes, last
        ranks = [trace.ranks[lane[0]] for lane in lanes]
        self._marks = {rank.rank: [mark for mark in rank.marks if mark.name not in _HIDDEN_MARKS] for rank in ranks}
        busy = [(call.begin, last if call.end is None else call.end) for rank in ranks for call in rank.calls]
        shown = (mark for marks in self._marks.values() for mark in marks if mark.name not in _SETTING_UP)
        busy += [(mark.begin, mark.end) for mark in shown if mark.end is not None]
        self._axis = Axis(busy, _LEFT, _WIDTH - 8.0)
        self._step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
        first = sorted((call.begin, call.op) for rank in ranks for call in rank.calls)
        self._colours = {**{op: operation(op).colour for _, op in first}, "waits for others": "currentColor"}
        """By operation, in the order of appearance."""

    def render(self, prefix: str) -> str:
        """The whole picture."""
        lanes, bottom = [], 2.0
        for lane in self._lanes:
            lanes.append(self._lane(self._trace.ranks[lane[0]], lane[1:], bottom))
            bottom = lanes[-1]["end"]
        legend, left, top = [], _LEFT, bottom + _AXIS + 6
        for name in self._colours:
            width = 22 + len(name) * _LETTER
            if left + width > _WIDTH and left > _LEFT:
                left, top = _LEFT, top + 15
            legend.append((name, left, top))
            left += width
        pauses = [((one.right + other.left) / 2, other.begin - one.end) for one, other in pairwise(self._axis.pieces)]
        return fill(
            "still",
            {"g": "{:g}".format, "px": "{:.1f}".format},
            hatchings={name: f"{prefix}-{number}" for number, name in enumerate(self._colours)},
            count=sum(map(len, self._lanes)),
            height=round(top + 16),
            colours=self._colours,
            letter=_LETTER,
            lanes=lanes,
            bottom=bottom,
            pieces=self._axis.pieces,
            pauses=pauses,
            ticks=self._ticks(),
            legend=legend,
        )

    def _lane(self, rank: RankTrace, others: Sequence[int], top: float) -> dict[str, Any]:
        """What a rank did, and how many others did the same."""
        rows, place = make_rows(rank, self._axis, self._last), self._axis.place
        clocks = self._trace.clocks
        error_s = clocks.errors.get(rank.rank, 0.0) if clocks.several else 0.0
        bars = [(bar, top + _MARK + number * _BAR) for number, row in enumerate(rows) for bar in row]
        ended = ((mark, mark.end) for mark in self._marks[rank.rank] if mark.end is not None)
        return {
            "rank": rank.rank,
            "others": others,
            "error": error_s,
            "top": top,
            "end": top + _MARK + _BAR * max(1, len(rows)) + _GAP,
            "marks": [(mark, place(mark.begin), place(end)) for mark, end in ended],
            "bars": [self._bar(bar, bar_top, error_s) for bar, bar_top in bars],
        }

    def _bar(self, bar: Bar, top: float, error_s: float) -> dict[str, Any]:
        call, single = bar.calls[0], len(bar.calls) == 1
        step = self._step_of.get((call.rank, call.index))
        late = step.awaited(call) if single and step is not None else None
        waits_until = bar.left if late is None else min(max(self._axis.place(late.begin), bar.left), bar.right)
        edges = [time for time in (call.begin, bar.calls[-1].end) if error_s and time is not None]
        errors = [(self._axis.place(time - error_s), self._axis.place(time + error_s)) for time in edges]
        return {
            "hint": self._hint(bar, step),
            "op": call.op,
            "named": single and bar.right - bar.left > len(call.op) * _LETTER + 6,
            "open": call.end is None,
            "bad": call.state != "completed",
            "top": top,
            "left": bar.left,
            "waits_until": waits_until if waits_until > bar.left + 0.5 else bar.left,
            "right": bar.right,
            "errors": [ends for ends in errors if ends[1] - ends[0] >= _LEAST_ERROR],  # by the clocks of other hosts
        }

    def _hint(self, bar: Bar, step: Step | None) -> str:
        call = bar.calls[0]
        if len(bar.calls) > 1:
            return f"{len(bar.calls)} calls, {call.op} to {bar.calls[-1].op}: {format_duration(bar.end - call.begin)}"
        took = "never ended" if call.end is None else format_duration(call.end - call.begin)
        place = f", at {call.source}" if call.source else ""
        lines = [render_call(call, self._trace.groups), f"{took}, {format_bytes(call.bytes)}{place}"]
        late = step.awaited(call) if step is not None else None
        if step is not None and step.missing:
            lines.append(f"{name_ranks(step.missing)} never came")
        elif step is not None and late is not None:
            until = late.begin if call.end is None else min(late.begin, call.end)
            sure = f" (± {format_duration(step.apart_s)})" if step.apart_s else ""
            lines.append(f"waited {format_duration(until - call.begin)}{sure} for rank {late.rank}")
        return "\n".join([*lines, call.error] if call.error else lines)

    def _ticks(self) -> list[tuple[float, float, str]]:
        """Where ticks and their labels stand, and what these say."""
        times = self._axis.ticks()
        distance = min((later - one for one, later in pairwise(times)), default=1.0)
        ticks: list[tuple[float, float, str]] = []
        for time in times:
            place = self._axis.place(time)
            if not ticks or place - ticks[-1][0] >= 48:
                label_at = min(place, self._axis.pieces[-1].right - 10)
                ticks.append((place, label_at, format_moment(time, distance)))
        return ticks
