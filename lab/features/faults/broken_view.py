"""What was broken in a run on purpose, for a person: since when, what each rank and node saw of it, until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.features.faults.detection import Detection, facts_of, find_detections
from lab.node.messages.agent import Started
from lab.record.events import Event
from lab.record.read import Record
from lab.words import capital, format_duration

_MOST_SEEN = 6


def broken_in(record: Record) -> list[dict[str, Any]]:
    """Each fault of a run with its times and a sentence or two."""
    return tell_broken(facts_of(record))


def tell_broken(facts: Sequence[Event]) -> list[dict[str, Any]]:
    """Each fault with its times and a sentence or two, from the facts of a run."""
    began = min((fact.time for fact in facts if isinstance(fact, Started)), default=0.0)
    return [
        {
            "fault": one.fault,
            "why": one.why,
            "at_s": _since(began, one.time),
            "healed_s": None if one.healed is None else _since(began, one.healed),
            **one.told(),
            "seen": [{"after_s": _since(one.time, fact.time), "by": fact.by, "what": fact.what} for fact in one.seen],
            "sentence": _sentence(one, began),
        }
        for one in find_detections(facts)
    ]


def _since(begin: float, time: float) -> float:
    return round(max(0.0, time - begin), 6)


def _sentence(one: Detection, began: float) -> str:
    when = f"after {format_duration(_since(began, one.time))}, when {one.why}" if one.why else "before the run began"
    told = f"Broken on purpose: {one.fault}, {when}"
    if one.healed is not None:
        told += f"; healed {format_duration(_since(one.time, one.healed))} later"
    if not one.seen:
        return f"{told}. Nobody noticed."
    seen = [f"{fact.by} {fact.what} (after {format_duration(_since(one.time, fact.time))})" for fact in one.seen]
    more = f"; {len(one.seen) - _MOST_SEEN} more" if len(one.seen) > _MOST_SEEN else ""
    return f"{told}. {capital('; then '.join(seen[:_MOST_SEEN]))}{more}."
