"""What happened besides calls: workers started and ended, notes, faults; with times as in the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lab.record.read import Record
from lab.report.html.columns import microseconds
from lab.words import format_value

_LONGEST_NOTE = 200
_MOST_NOTES = 5000
_LATEST = 1e11
"""Unix times beyond are damage."""


def origin_of(record: Record, traced: float) -> float:
    """Unix time at which the page's clock is 0: that of the trace; without one, the start of the first worker."""
    if traced:
        return traced
    times = [event["time"] for event in record.events() if event.get("event") == "started" and _number(event, "time")]
    return min(times, default=0.0)


def moments(record: Record, origin: float) -> dict[str, Any]:
    """Ends of workers, notes and faults, by time in microseconds."""
    lives: dict[int, dict[str, Any]] = {}
    notes: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    ranks_of_node: dict[str, list[int]] = {}
    for one, node in record.workers().items():
        ranks_of_node.setdefault(node, []).append(one)
    for event in record.events():
        when = _number(event, "time")
        if when is None:
            continue
        t, kind = microseconds(when - origin), event.get("event")
        rank: Any = event.get("rank")
        if kind in ("started", "exited") and not isinstance(rank, int):
            continue
        if kind == "started":
            lives.setdefault(rank, {})["begin"] = t
        elif kind == "exited":
            lives.setdefault(rank, {}).update(end=t, bad=_bad(event), text=_end_text(event))
        elif kind == "note" and len(notes) < _MOST_NOTES:
            notes.append(
                {
                    "t": t,
                    "rank": rank,
                    "text": f"{event.get('name')} = {format_value(event.get('value'), _LONGEST_NOTE)}",
                }
            )
        elif isinstance(kind, str) and kind.startswith("fault"):
            _fault(faults, event, t, ranks_of_node)
    return {"lives": lives, "notes": notes, "faults": faults}


def _number(event: Mapping[str, Any], key: str) -> float | None:
    value = event.get(key)
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LATEST else None


def _bad(event: Mapping[str, Any]) -> bool:
    return not event.get("stopped") and (event.get("code") not in (0, None) or bool(event.get("signal")))


def _end_text(event: Mapping[str, Any]) -> str:
    if event.get("stopped"):
        return "stopped by the lab"
    if event.get("out_of_memory"):
        return "killed: out of memory"
    if event.get("signal"):
        return f"killed by {event['signal']}"
    error = f": {event['error']}" if event.get("error") else ""
    return f"exit {event.get('code')}{error}"


def _fault(faults: list[dict[str, Any]], event: Mapping[str, Any], t: int, ranks_of_node: dict[str, list[int]]) -> None:
    """A window for a fault; a later fact that says it is healed closes the latest open window of the same words."""
    words = next((str(event[key]) for key in ("what", "fault", "name", "kind") if event.get(key)), "fault")
    if event.get("state") in ("healed", "ended") or str(event.get("event")).endswith(("healed", "ended")):
        for fault in reversed(faults):
            if fault["text"] == words and fault["until"] is None:
                fault["until"] = t
                break
        return
    ranks = [event["rank"]] if event.get("rank") is not None else ranks_of_node.get(str(event.get("node")))
    faults.append({"t": t, "until": None, "ranks": ranks, "text": words})


def note_rows(results: Iterable[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Rank, name and value of the last note of each name, from the ranks of `result.json`."""
    return [
        (rank["rank"], str(name), format_value(value, 2000))
        for rank in results
        for name, value in (rank.get("notes") or {}).items()
    ]
