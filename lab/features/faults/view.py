"""What can be broken, and what is or was broken, for a person and for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine.select import engine_names
from lab.features.faults.detection import Detection, facts_of, find_detections
from lab.features.faults.fault_journal import Standing
from lab.features.faults.kind import FaultKind, fault_kinds
from lab.node.messages.agent import Started
from lab.record.events import Event
from lab.record.read import Record
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import capital, format_bit_rate, format_duration, listing, plural

_COUNTS = {
    "dropped_packets": ("packet", "dropped"),
    "lost_packets": ("packet", "lost"),
    "reset_connections": ("connection", "reset"),
    "reset_packets": ("packet", "answered by a reset"),
    "doubled_packets": ("packet", "sent twice"),
    "unanswered_packets": ("packet", "with questions for names refused"),
}


def found_words(found: Mapping[str, Any]) -> str:
    """`asked 100 Mbit/s, got 99.8 Mbit/s (node0 -> node1); 12 packets dropped`; empty where nothing was measured."""
    measured = []
    rate, got = _number(found, "asked_rate_bits_per_s"), _number(found, "bits_per_s")
    if rate is not None:
        told = f"got {format_bit_rate(got)}" if got is not None else "which is too fast to be measured here"
        measured.append(f"asked {format_bit_rate(rate)}, {told}")
    delay, round_trip = _number(found, "asked_delay_s"), _number(found, "round_trip_s")
    if delay is not None:
        told = f"{format_duration(round_trip)} there and back" if round_trip is not None else "no answer"
        measured.append(f"asked {format_duration(delay)} one way, got {told}")
    way = f" ({found['measured']})" if measured and isinstance(found.get("measured"), str) else ""
    met = [
        f"{plural(int(count), what)} {words}"
        for name, (what, words) in _COUNTS.items()
        if (count := _number(found, name)) is not None
    ]
    return "; ".join(filter(None, (f"{', '.join(measured)}{way}", listing(met))))


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def describe_faults(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """The faults of a result as sentences, and the network that the whole run had: `network wan-40ms; asked 20 ms`."""
    sentences = []
    for fault in faults:
        name, measured = str(fault.get("fault")), _measured(fault)
        whole_run = name.startswith("network ") and not fault.get("why") and not fault.get("failed")
        network = f"{name}; {measured}" if measured else name
        sentences.append(network if whole_run else f"broken on purpose: {describe_fault(fault)}")
    return sentences


def describe_fault(fault: Mapping[str, Any]) -> str:
    """What was broken on purpose, and when: `stop node2 after 1.20 s, when rank 0 noted step = 3`."""
    at, why, failed = fault.get("at_s"), fault.get("why"), fault.get("failed")
    when = f"after {format_duration(at)}" if isinstance(at, float) else "before the run"
    told = f"{fault.get('fault') or 'a fault'} {when}{f', when {why}' if why else ''}"
    if failed:
        return f"{told}; it could not be done: {failed}"
    measured = _measured(fault)
    told = f"{told}; {measured}" if measured else told
    noticed, by = fault.get("detected_s"), fault.get("by")
    return f"{told}; noticed after {format_duration(noticed)} by {by}" if isinstance(noticed, float) and by else told


def _measured(fault: Mapping[str, Any]) -> str:
    found = fault.get("found")
    return found_words(found) if isinstance(found, Mapping) and found else ""


def kinds_json() -> list[dict[str, Any]]:
    """Every kind, with which engine can do it, or why not."""
    return [
        {
            "kind": name,
            "does": kind.does,
            "allowed": kind.value().allowed,
            "example": kind.example,
            "by_rank": kind.by_worker,
            "cannot": cannot(kind),
        }
        for name, kind in fault_kinds().items()
    ]


def cannot(kind: type[FaultKind]) -> dict[str, str]:
    """The engines that cannot do a kind, and why not."""
    return {engine: why for engine in engine_names() if (why := kind.why_not(engine))}


def kinds_text(style: Style) -> str:
    """A table of the kinds, and below it why an engine cannot do some."""
    kinds, engines = fault_kinds().items(), engine_names()
    rows = [[name, *(engine_cell(kind, engine) for engine in engines), kind.does] for name, kind in kinds]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, kind in kinds:
        for engine, why in cannot(kind).items():
            reasons.setdefault((engine, why), []).append(name)
    told = [f"not on {engine}: {listing(names)}, which {why}" for (engine, why), names in reasons.items()]
    return "\n".join([table_text(["fault", *engines, "what it breaks"], rows, style), *told])


def engine_cell(kind: type[FaultKind], engine: str) -> str:
    """Whether an engine can do it, and whether only in a run."""
    if kind.why_not(engine):
        return "no"
    return "in runs" if kind.by_worker else "yes"


def standing_text(standing: Sequence[Standing], now: float, style: Style) -> str:
    """What is broken now, with who did it and since when."""
    if not standing:
        return "nothing is broken"
    rows = [[one.said, one.state, one.by, f"{format_duration(max(0.0, now - one.since))} ago"] for one in standing]
    return table_text(["fault", "state", "done by", "since"], rows, style)


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
