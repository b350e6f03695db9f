"""Brings the clocks of the ranks of a run together.

Ranks whose nodes have the same clock need nothing for that. Other clocks are brought to that of the lab's machine by
exchanges, of which the record tells the best from the begin of the run and from its end: what was asked is answered at
a moment that lies between both by the lab's clock, so that half of the time which that took bounds the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.record.events import Clock
from lab.record.read import Record
from lab.record.started import ranks_of
from lab.trace.clocks import SHARED_CLOCK_ERROR_S, Clocks, Reading
from lab.trace.fields import number

_DRIFT = 1e-4
"""Quartz clocks are within 50 µs a second of the truth, each of two."""


def align(starts: Mapping[int, Mapping[str, Any]], record: Record) -> Clocks:
    """The clocks of ranks, from the first lines of their traces.

    Ranks that share a clock share its error too; one of them tells the time of day for all, where it has no other.
    """
    if not starts:
        return Clocks()
    events = [*record.events()]
    told = [event for event in events if isinstance(event, Clock)]
    over = max((event.time for event in events), default=0.0)
    nodes, names = ranks_of(record), {rank: str(start.get("boot", rank)) for rank, start in starts.items()}
    known: dict[str, tuple[Reading, float]] = {}
    for rank, start in starts.items():
        if names[rank] not in known:
            ours = [one for one in told if one.boot == names[rank] and one.monotonic_s]
            last = next((one for one in reversed(told) if one.node == nodes.get(rank)), None)
            known[names[rank]] = _line(ours, start, over) if ours else _by_the_day(start, last)
    origin = min(known[names[rank]][0].nanoseconds(number(start, "t")) for rank, start in starts.items())
    readings = {name: reading._replace(offset=reading.offset - origin) for name, (reading, _) in known.items()}
    errors = {rank: known[name][1] for rank, name in names.items()}
    return Clocks({rank: readings[name] for rank, name in names.items()}, origin / 1e9, names, errors)


def _by_the_day(start: Mapping[str, Any], clock: Clock | None) -> tuple[Reading, float]:
    """By the time of day that a rank told when its trace began, and how far that is off on its node."""
    offset_s, error_s = (clock.offset_s, clock.error_s) if clock is not None else (0.0, 0.0)
    offset = number(start, "wall") - number(start, "t") - int(offset_s * 1e9)
    within_s = number(start, "within") / 1e9 if "within" in start else SHARED_CLOCK_ERROR_S
    return Reading(offset), error_s + max(SHARED_CLOCK_ERROR_S, within_s)


def _line(told: Sequence[Clock], start: Mapping[str, Any], over: float) -> tuple[Reading, float]:
    """By exchanges: the best of them, or the line from the best of the begin to the best of the end."""
    best = min(told, key=lambda one: one.error_s)
    offset = _offset(best)
    began = (number(start, "t") + offset) / 1e9
    over = max(over, began)
    choices = [(Reading(offset), best.error_s + _DRIFT * max(abs(best.time - began), abs(over - best.time)))]
    middle = (min(one.time for one in told) + max(one.time for one in told)) / 2
    first, last = ([one for one in told if (one.time > middle) == late] for late in (False, True))
    if first and last:
        one, other = (min(some, key=lambda clock: clock.error_s) for some in (first, last))
        shown = round((other.monotonic_s - one.monotonic_s) * 1e9)
        drift = (_offset(other) - _offset(one)) / shown if shown > 0 else 0.0
        beyond_s = max(0.0, one.time - began, over - other.time)
        error_s = max(one.error_s, other.error_s) + 2 * _DRIFT * beyond_s
        if abs(drift) <= _DRIFT:
            choices.append((Reading(_offset(one), drift, round(one.monotonic_s * 1e9)), error_s))
    reading, error_s = min(choices, key=lambda choice: choice[1])
    return reading, error_s + SHARED_CLOCK_ERROR_S


def _offset(clock: Clock) -> int:
    """Nanoseconds to be added to its monotonic clock to have the lab's Unix time."""
    return round((clock.time - clock.monotonic_s) * 1e9)
