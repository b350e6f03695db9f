"""The data of a run that a page's timeline and list of steps are drawn from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lab.features.html.columns import Line, Names, call_lines, columns, mark_lines, microseconds, step_lines
from lab.features.html.moments import moments
from lab.operations import operation
from lab.record.read import Record
from lab.report.palette import operation_tones
from lab.trace.critical import Piece
from lab.trace.model import RankTrace, Trace
from lab.trace.steps import Step
from lab.trace.timing import ready_at

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
