"""What the kernels of the nodes said of their connections in a run: the last of each node about each other, as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.node.messages.tcp import Connections
from lab.record.events import Event
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import format_bytes, format_duration

_HEAD = ["from", "to", "round trip", "delivered", "acknowledged", "sent again", "not acknowledged", "answers"]
_ANSWERS = {None: "-", True: "yes", False: "no"}


def connections_json(facts: Iterable[Event]) -> list[dict[str, Any]]:
    """Every report, in order."""
    return [one._asdict() for one in facts if isinstance(one, Connections)]


def connections_text(facts: Iterable[Event], style: Style) -> str:
    """A line for each node and each other one; that nothing is known, where nothing is."""
    told = [one for one in facts if isinstance(one, Connections)]
    if not told:
        return "nothing is known of connections: short runs tell nothing, nor do nodes without a network of their own"
    last: dict[tuple[str, str], Connections] = {}
    for one in told:
        way = one.node, one.peer
        if one.number or way not in last:  # what is closed tells nothing more
            last[way] = one
    return table_text(_HEAD, [_cells(last[way]) for way in sorted(last)], style)


def _cells(one: Connections) -> list[str]:
    again = f"{one.sent_again} of {one.segments_out}" if one.segments_out else "-"
    left = format_bytes(one.unacknowledged_bytes) if one.unacknowledged_bytes else "-"
    left += f" for {format_duration(one.silent_s)}" if one.stuck else ""
    return [
        one.node,
        one.peer,
        format_duration(one.round_trip_s) if one.round_trip_s else "-",
        f"{format_bytes(round(one.rate_bytes_per_s))}/s" if one.rate_bytes_per_s else "-",
        format_bytes(one.acknowledged_bytes),
        again,
        left,
        _ANSWERS[one.answers],
    ]
