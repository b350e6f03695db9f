"""Timelines of a run: the data for the page's timeline, and a static picture."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lab.diagnosis.errors import shorten_error
from lab.feature import find_view
from lab.features.calls.notation import render_call
from lab.features.html.write import fill_template
from lab.features.stragglers.timing import Piece, blocked_spans, ready_at, unseen_calls
from lab.features.timeline.svg import operation_tones, rows_of
from lab.features.traffic.traffic import size_of
from lab.node.messages.agent import Exited, Note, Started
from lab.operations import get_operation
from lab.record.events import Fault
from lab.record.read import Record
from lab.trace.model import Call, RankTrace, Trace
from lab.trace.steps import Step
from lab.words import clip_end, format_duration, format_moment, format_value

Line = dict[str, Any]
_LONGEST_WORDS = 300


class Names(dict[str, int]):
    """Strings, each stored once, with their indices."""

    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self))


def to_columns(lines: Iterable[Line], names: Names) -> dict[str, list[Any]]:
    """Turn lines with the same keys into columns, one for each key."""
    result: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        for key, value in line.items():
            result[key].append(names[value] if isinstance(value, str) else value)
    result["begin"] = [begin - before for before, begin in pairwise([0, *result["begin"]])]
    return result


def to_us(seconds: float) -> int:
    """Round seconds to whole microseconds."""
    return round(seconds * 1e6)


def call_lines(trace: Trace, steps: Iterable[Step], path: Collection[tuple[int, int]] = ()) -> Iterator[Line]:
    """Yield a line for each call, rank by rank, in the order in which the calls began.

    `wait` is the time that the call waited for others. The call blocked its rank from `held` after its beginning (-1:
    it did not; -2: unknown) until `freed` before its end. Calls on the critical path, given as ranks with indices of
    their calls, have `path` set.
    """
    step_by_call: dict[tuple[int, int], tuple[int, int]] = {}
    for step in steps:
        waited = step.waited
        for rank, call in step.calls.items():
            step_by_call[rank, call.index] = step.number, to_us(waited[rank]) if rank in waited else -1
    for rank in sorted(trace.ranks):
        calls, spans = trace.ranks[rank].calls, blocked_spans(trace.ranks[rank])
        unseen_indices = {call.index for call in unseen_calls(trace.ranks[rank])}
        for call, row in zip(calls, rows_of(calls), strict=True):
            number, wait = step_by_call.get((rank, call.index), (0, 0))
            begin, end = spans.get(call.index, (None, None))
            yield {
                "rank": rank,
                "begin": to_us(call.begin),
                "dur": _elapsed(call.begin, call.end),
                "row": row,
                "wait": wait,
                "held": -2 if call.index in unseen_indices else _elapsed(call.begin, begin),
                "freed": 0 if end is None or call.end is None else _elapsed(end, call.end),
                "path": int((rank, call.index) in path),
                "step": number,
                "op": call.op,
                "at": call.source,
                "via": call.via,
                "phase": call.phase,
                "bytes": call.bytes,
                "async": int(call.asynchronous),
                "error": call.error and shorten_error(call.error, tuple, brief=True),
                "bucket": -1 if call.bucket is None else call.bucket,
                "params": clip_end(", ".join(call.parameters), _LONGEST_WORDS),
            }


def step_lines(steps: Iterable[Step], mismatched: Collection[int] = ()) -> Iterator[Line]:
    """Yield a line for each step; the steps in `mismatched` have a wrong result.

    `last` is the rank that the others waited for, `ready` the time until it entered.
    """
    for step in steps:
        late, begin = step.late, step.begin
        sender = step.source if step.message else None
        yield {
            "begin": to_us(begin),
            "ready": _elapsed(begin, late.begin if late else None),
            "dur": _elapsed(begin, step.end),
            "last": late.rank if late else -1,
            "title": step.title,
            "round": step.round or 0,
            "sender": -1 if sender is None else sender,
            "state": step.state,
            "wrong": int(step.number in mismatched),
            "bytes": size_of(step),
            "missing": step.missing,
        }


def _elapsed(begin: float, end: float | None) -> int:
    return -1 if end is None else max(0, to_us(end) - to_us(begin))


_LONGEST_NOTE = 200
_MOST_NOTES = 5000


def list_moments(record: Record, origin: float) -> tuple[dict[int, Line], list[Line], list[Line]]:
    """Return the lifetime of each rank, notes, and faults; times in microseconds."""
    lives: dict[int, Line] = defaultdict(dict)
    notes: list[Line] = []
    faults: list[Line] = []
    nodes, facts = record.ranks(), [*record.events()]
    find_detections = find_view("detections")
    detections = iter(find_detections(facts) if find_detections else ())
    for event in facts:
        t = to_us(event.time - origin)
        if isinstance(event, Started):
            lives[event.rank]["begin"] = t
        elif isinstance(event, Exited):
            lives[event.rank].update(end=t, bad=has_failed(event), text=end_text(event))
        elif isinstance(event, Note) and len(notes) < _MOST_NOTES:
            notes.append({"begin": t, "rank": event.rank, "text": note_text(event)})
        elif isinstance(event, Fault):
            ranks = [rank for rank, node in nodes.items() if node == event.node]
            ranks = ranks or ([] if event.rank is None else [event.rank])
            detection = next(detections, None)
            healed = None if detection is None else detection.healed
            until = None if healed is None else to_us(healed - origin)
            text = event.fault if detection is None else detection.sentence()
            faults.append({"t": t, "until": until, "ranks": ranks or None, "text": text})
    return lives, notes, faults


def note_text(note: Note) -> str:
    """Render what a script noted."""
    return f"{note.name} = {format_value(note.value, _LONGEST_NOTE)}"


def has_failed(event: Exited) -> bool:
    """Return whether a worker failed: it ended by itself with an exit code or a signal."""
    return not event.stopped and bool(event.code or event.signal)


def end_text(event: Exited) -> str:
    """Render how a worker ended, in a few words."""
    if event.stopped:
        return "stopped by the lab"
    if event.out_of_memory:
        return "killed: out of memory"
    if event.signal:
        return f"killed by {event.signal}"
    return f"exit {event.code}{f': {event.error}' if event.error else ''}"


_PHASES = {"forward": "#3f78c9", "backward": "#cc7a29", "loss": "#9360c4", "step": "#3d9455", "zero_grad": "#7d858f"}
"""The phases of training with their colors."""
_OTHER_PHASE = "#838a94"


def run_data(
    record: Record,
    trace: Trace,
    steps: Sequence[Step],
    *,
    lanes: Sequence[Sequence[int]],
    path: Sequence[Piece] = (),
    mismatched: Collection[int] = (),
    logs: Iterable[tuple[int, float, int]] = (),
) -> dict[str, Any]:
    """Return everything that a timeline shows, times in microseconds; `model.js` reads it.

    Args:
        record: the record of the run.
        trace: the calls of its ranks.
        steps: the same calls, matched into steps.
        lanes: the ranks of each lane, including those without a trace; see `lanes_of`.
        path: the critical path, if it is known.
        mismatched: numbers of the steps with a wrong result.
        logs: rank, Unix time, and stream of each line of the log.
    """
    names, starts = Names(), (event.time for event in record.events() if isinstance(event, Started))
    origin = trace.origin or min(starts, default=0.0)
    lives, notes, faults = list_moments(record, origin)
    traced = [own for _, own in sorted(trace.ranks.items())]
    on_path = {(piece.rank, piece.call.index) for piece in path if piece.within and piece.call is not None}
    ops = sorted({call.op for own in traced for call in own.calls})
    phases = (  # outer phases before inner ones; a phase that never ended lasts to the end
        {"rank": own.rank, "begin": to_us(phase.begin), "dur": _elapsed(phase.begin, end), "name": phase.name}
        for own in traced
        for phase in own.phases
        for end in (own.last if phase.end is None else phase.end,)
    )
    printed = ({"rank": rank, "begin": to_us(time - origin), "stream": stream} for rank, time, stream in logs)
    ranks: list[Line] = []
    for rank in sorted(rank for lane in lanes for rank in lane):
        own, line = trace.ranks.get(rank), {"rank": rank, "life": lives.get(rank, {}), "from": 0, "to": 0}
        if own is not None and own.recorded:  # the period in which its time is known
            line.update({"from": to_us(ready_at(own)), "to": to_us(own.last)})
        if trace.clocks.are_separate:  # the error of its times
            line["off"] = to_us(trace.clocks.errors.get(rank, 0.0))
        ranks.append(line)
    return {
        "span": [
            min([0, *(life.get("begin", 0) for life in lives.values())]),
            max([to_us(trace.last), *(life.get("end", 0) for life in lives.values()), 1]),
        ],
        "origin": origin,
        "ranks": ranks,
        "lanes": lanes,
        "calls": to_columns(call_lines(trace, steps, on_path), names),
        "steps": to_columns(step_lines(steps, mismatched), names),
        "marks": to_columns(phases, names),
        "logs": to_columns(printed, names),
        "notes": notes,
        "faults": faults,
        "path": [path[0].rank, *map(to_us, (path[0].begin, path[-1].end))] if path else None,
        "phases": {phase.name: _PHASES.get(phase.name, _OTHER_PHASE) for own in traced for phase in own.phases},
        "colours": {op: operation_tones(get_operation(op)) for op in ops},
        "names": list(names),
    }


# -- the static picture

_LEFT, _RIGHT, _BAR, _GAP, _AXIS = 64.0, 880.0, 16.0, 9.0, 24.0
_LETTER = 5.6
_TICKS = 8
"""Approximate number of ticks on an axis."""
_MIN_BAR_PX = 2.0
"""Minimum width of a bar."""


class Axis(NamedTuple):
    """Maps seconds to pixels."""

    begin: float
    end: float

    def position(self, time: float) -> float:
        """Return the pixels of a moment; moments outside of the axis are at its ends."""
        return _LEFT + (_RIGHT - _LEFT) * min(max((time - self.begin) / ((self.end - self.begin) or 1.0), 0.0), 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Return round moments to label: their positions and their texts."""
        least = ((self.end - self.begin) or 1e-6) / _TICKS
        power = 10.0 ** math.floor(math.log10(least))
        step = next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least)
        numbers = range(math.ceil(self.begin / step), math.floor(self.end / step) + 1)
        return [(self.position(number * step), format_moment(number * step, step)) for number in numbers]


class Bar(NamedTuple):
    """A call in the picture."""

    call: Call
    row: int
    left: float
    """Pixels."""
    right: float


def lay_out_bars(rank: RankTrace, axis: Axis) -> Iterator[Bar]:
    """Yield the bars of a rank's calls; a call that never ended lasts until the end of the axis.

    A call that is hidden by the one before it in its row has no bar.
    """
    edges: dict[int, float] = {}
    for call, row in zip(rank.calls, rows_of(rank.calls), strict=True):
        begin, end = axis.position(call.begin), axis.end if call.end is None else call.end
        left, right = max(begin, edges.get(row, 0.0)), max(axis.position(end), begin + _MIN_BAR_PX)
        if right - left >= 1:
            edges[row] = right + 0.5
            yield Bar(call, row, left, right)


def timeline_svg(
    trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], *, until: float = 0.0, prefix: str
) -> str:
    """Draw the timeline of a run as a static picture; empty if no rank made a call.

    Args:
        trace: the trace of the run.
        steps: its calls, matched into steps.
        lanes: the ranks of each lane, of which the first is shown; see `lanes_of`.
        until: seconds until which ranks are known to have been alive; calls that never ended last as long.
        prefix: prefix of the ids in the picture, so that a page can hold several.
    """
    shown = [lane for lane in lanes if lane[0] in trace.ranks]
    ranks = [trace.ranks[lane[0]] for lane in shown]
    if not any(rank.calls for rank in ranks):
        return ""
    last = max(trace.last, until)
    calls = [(call.begin, last if call.end is None else call.end, call.op) for rank in ranks for call in rank.calls]
    axis = Axis(min(begin for begin, *_ in calls), max(end for _, end, _ in calls))
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    colours = {op: get_operation(op).colour for *_, op in sorted(calls)} | {"waits for others": "currentColor"}
    drawn: list[Line] = []
    for shown_rank, *other_ranks in shown:
        top = drawn[-1]["end"] if drawn else 2.0
        drawn.append(_draw_lane(trace, trace.ranks[shown_rank], axis, step_of, top) | {"others": other_ranks})
    return fill_template(
        "still.html",
        {"g": "{:g}".format},
        hatchings={name: f"{prefix}-{number}" for number, name in enumerate(colours)},
        count=sum(map(len, shown)),
        height=drawn[-1]["end"] + _AXIS,
        colours=colours,
        letter=_LETTER,
        lanes=drawn,
        bottom=drawn[-1]["end"],
        ends=(_LEFT, _RIGHT),
        ticks=axis.ticks(),
    )


def _draw_lane(trace: Trace, rank: RankTrace, axis: Axis, step_of: Mapping[tuple[int, int], Step], top: float) -> Line:
    """Return the bars of a rank."""
    bars, rows = [], 1
    for call, row, left, right in lay_out_bars(rank, axis):
        step = step_of.get((call.rank, call.index))
        late = step.awaited(call) if step is not None else None
        duration = "never ended" if call.end is None else format_duration(call.end - call.begin)
        waits_until = left if late is None else min(max(axis.position(late.begin), left), right)
        rows = max(rows, row + 1)
        bars.append(
            {
                "hint": f"{render_call(call, trace.groups)}\n{duration}",
                "op": call.op,
                "named": right - left > len(call.op) * _LETTER + 6,
                "open": call.end is None,
                "bad": call.state != "completed",
                "top": top + row * _BAR,
                "left": left,
                "waits_until": waits_until if waits_until > left + 0.5 else left,
                "right": right,
            }
        )
    return {"rank": rank.rank, "top": top, "end": top + _BAR * rows + _GAP, "bars": bars}
