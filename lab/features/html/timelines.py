"""What a page's timeline and list of steps are drawn from: calls, steps and phases as columns, and other moments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lab.feature import view
from lab.features.timeline.colours import operation_tones
from lab.features.timeline.lanes import rows_of
from lab.features.traffic.traffic import size_of
from lab.node.messages.agent import Exited, Note, Started
from lab.operations import operation
from lab.record.events import Fault
from lab.record.read import Record, ranks_of
from lab.trace.model import RankTrace, Trace
from lab.trace.steps import Step
from lab.trace.timing import Piece, blocked_spans, ready_at, unseen_calls
from lab.words import clip, format_value

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


def mark_lines(trace: Trace) -> Iterator[Line]:
    """A line for each phase of each rank, outer ones before those inside; one that never ended lasts to the end."""
    for rank, own in sorted(trace.ranks.items()):
        for mark in own.marks:
            end = own.last if mark.end is None else mark.end
            begin, dur = microseconds(mark.begin), _between(mark.begin, end)
            yield {"rank": rank, "begin": begin, "dur": dur, "name": mark.name}


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
    nodes, facts = ranks_of(record), [*record.events()]
    find_detections = view("detections")
    detections = iter(find_detections(facts) if find_detections else ())
    for event in facts:
        t = microseconds(event.time - origin)
        if isinstance(event, Started):
            lives[event.rank]["begin"] = t
        elif isinstance(event, Exited):
            bad = not event.stopped and bool(event.code or event.signal)
            lives[event.rank].update(end=t, bad=bad, text=end_text(event))
        elif isinstance(event, Note) and len(notes) < _MOST_NOTES:
            text = f"{event.name} = {format_value(event.value, _LONGEST_NOTE)}"
            notes.append({"begin": t, "rank": event.rank, "text": text})
        elif isinstance(event, Fault):
            of_node = [rank for rank, node in nodes.items() if node == event.node]
            found = next(detections, None)
            until = None if found is None or found.healed is None else microseconds(found.healed - origin)
            faults.append(
                {
                    "t": t,
                    "until": until,
                    "ranks": of_node or (None if event.rank is None else [event.rank]),
                    "text": event.fault if found is None else found.brief,
                }
            )
    return lives, notes, faults


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
    logs: Iterator[Line] | None = None,
    more: Mapping[str, Mapping[str, list[Any]]] | None = None,
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
        logs: lines of the log, with rank, stream and time.
        more: further columns of `calls` and `steps`.
    """
    names, more = Names(), more or {}
    lives, notes, faults = moments(record, origin)
    begins = [life.get("begin", 0) for life in lives.values()]
    ends = [life.get("end", 0) for life in lives.values()]
    traced = trace.ranks.values()
    on_path = {(piece.rank, piece.call.index) for piece in path if piece.within and piece.call is not None}
    return {
        "span": [min([0, *begins]), max([microseconds(trace.last), *ends, 1])],
        "ranks": [
            {"rank": rank, "life": lives.get(rank, {}), **_recorded(trace.ranks.get(rank)), **_off(rank, trace)}
            for rank in sorted(rank for lane in lanes for rank in lane)
        ],
        "lanes": lanes,
        "calls": {**columns(call_lines(trace, steps, on_path), names), **more.get("calls", {})},
        "steps": {**columns(step_lines(steps, wrong), names), **more.get("steps", {})},
        "marks": columns(mark_lines(trace), names),
        "logs": columns(logs or iter(()), names),
        "notes": notes,
        "faults": faults,
        "path": [path[0].rank, *map(microseconds, (path[0].begin, path[-1].end))] if path else None,
        "phases": {mark.name: _PHASES.get(mark.name, _OTHER_PHASE) for rank in traced for mark in rank.marks},
        "colours": {
            op: operation_tones(operation(op)) for op in sorted({call.op for rank in traced for call in rank.calls})
        },
        "names": list(names),
    }


def _recorded(rank: RankTrace | None) -> Line:
    """From when to when a rank's time is known."""
    if rank is None or not rank.recorded:
        return {"from": 0, "to": 0}
    return {"from": microseconds(ready_at(rank)), "to": microseconds(rank.last)}


def _off(rank: int, trace: Trace) -> Line:
    """By how much its times may be off, where ranks have clocks of their own."""
    return {"off": microseconds(trace.clocks.errors.get(rank, 0.0))} if trace.clocks.several else {}
