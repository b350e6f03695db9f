"""What happened besides calls: workers started and ended, notes, faults; with times as in the trace."""

from __future__ import annotations

from collections import defaultdict

from lab.feature import view
from lab.features.html.columns import Line, microseconds
from lab.node.messages.agent import Exited, Note, Started
from lab.record.events import Fault
from lab.record.read import Record
from lab.record.started import ranks_of
from lab.words import format_value

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
