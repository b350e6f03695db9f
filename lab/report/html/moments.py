"""What happened besides calls: workers started and ended, notes, faults; with times as in the trace."""

from __future__ import annotations

from typing import Any

from lab.node.messages import Exited, Note, Started
from lab.record.events import Fault, FaultHealed
from lab.record.read import Record
from lab.report.html.columns import microseconds
from lab.words import format_value

_LONGEST_NOTE = 200
_MOST_NOTES = 5000


def origin_of(record: Record, traced: float) -> float:
    """Unix time at which the page's clock is 0: that of the trace; without one, the start of the first worker."""
    return traced or min((event.time for event in record.events() if isinstance(event, Started)), default=0.0)


def moments(record: Record, origin: float) -> dict[str, Any]:
    """Ends of workers, notes and faults, by time in microseconds."""
    lives: dict[int, dict[str, Any]] = {}
    notes: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    ranks_of_node: dict[str, list[int]] = {}
    for one, node in record.workers().items():
        ranks_of_node.setdefault(node, []).append(one)
    for event in record.events():
        t = microseconds(event.time - origin)
        if isinstance(event, Started):
            lives.setdefault(event.rank, {})["begin"] = t
        elif isinstance(event, Exited):
            bad = not event.stopped and bool(event.code or event.signal)
            lives.setdefault(event.rank, {}).update(end=t, bad=bad, text=_end_text(event))
        elif isinstance(event, Note) and len(notes) < _MOST_NOTES:
            notes.append(
                {"t": t, "rank": event.rank, "text": f"{event.name} = {format_value(event.value, _LONGEST_NOTE)}"}
            )
        elif isinstance(event, Fault):
            ranks = ranks_of_node.get(event.node) if event.rank is None else [event.rank]
            faults.append({"t": t, "until": None, "ranks": ranks, "text": event.fault})
        elif isinstance(event, FaultHealed):
            alike = [fault for fault in faults if fault["text"] == event.fault and fault["until"] is None]
            for fault in alike[-1:]:
                fault["until"] = t
    return {"lives": lives, "notes": notes, "faults": faults}


def _end_text(event: Exited) -> str:
    if event.stopped:
        return "stopped by the lab"
    if event.out_of_memory:
        return "killed: out of memory"
    if event.signal:
        return f"killed by {event.signal}"
    return f"exit {event.code}{f': {event.error}' if event.error else ''}"
