"""What was read back of faults where they were done, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.words import format_bit_rate, format_duration, listing, plural

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
