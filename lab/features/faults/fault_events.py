"""The events that set faults off and heal them, as a run hears of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lab.diagnosis.expectations import equal
from lab.diagnosis.patterns import TooLong, found_in
from lab.features.faults.fault import Fault
from lab.features.faults.when import When
from lab.node.messages.agent import Output
from lab.node.messages.fault import Reached
from lab.words import format_value

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
_LONGEST_LINE = 64 * 1024
_LONGEST_SHOWN = 100
_LONGEST_NOTE = 60


def triggers(faults: Sequence[Fault]) -> tuple[dict[str, Any], ...]:
    """The points at which ranks are held, as `Prepare` has them; and whether their writes have to be seen."""
    seen = ({"trigger": -1, "writes": True},) if any(fault.what.of_writes for fault in faults) else ()
    return seen + tuple(
        {"trigger": index, "heals": heals, **_point(event)}
        for index, fault in enumerate(faults)
        for event, heals in ((fault.when, False), (fault.until, True))
        if event is not None and event.exact
    )


def _point(event: When) -> dict[str, Any]:
    rank = {} if event.rank is None else {"rank": event.rank}
    if event.note is not None:
        return {**rank, "note": event.note}
    what = {"op": event.op} if event.op is not None else {"phase": event.phase}
    return {**rank, **what, "count": event.count, "edge": event.edge}


def reached_why(event: When, reached: Reached) -> str:
    """What happened, where a rank that is held has come to that event: `rank 0 noted step = 3`; empty where not."""
    who = f"rank {reached.rank}"
    if event.rank not in (None, reached.rank):
        return ""
    if event.note is not None:
        fits = event.equals is None or equal(event.equals, reached.value, _RELATIVE, _ABSOLUTE)
        return f"{who} noted {event.note} = {format_value(reached.value, _LONGEST_NOTE)}" if fits else ""
    what = event.op or event.phase
    verb = "had done" if event.edge == "after" else "came to"
    return f"{who} {verb} {what} {event.count}" if what else ""


class Printed:
    """What ranks print, line by line."""

    def __init__(self) -> None:
        self._rest: dict[tuple[int, int], bytes] = {}
        """What each has printed of a line that goes on, by rank and stream."""

    def lines(self, output: Output) -> str:
        """The lines that end with this; empty where none does."""
        key = (output.rank, output.stream)
        whole, newline, rest = (self._rest.get(key, b"") + output.data).rpartition(b"\n")
        self._rest[key] = rest[-_LONGEST_LINE:]
        return (whole + newline).decode("utf-8", "replace")


def printed_why(event: When, rank: int, lines: str) -> str:
    """What happened, where a rank has printed what that event waits for; empty where it has not.

    Raises:
        TooLong: searching takes too long.
        OSError: the search could not be made.
    """
    if event.log is None or event.rank not in (None, rank):
        return ""
    found = found_in(lines, event.log, re.MULTILINE)
    return "" if found is None else f"rank {rank} printed {format_value(found, _LONGEST_SHOWN)}"


__all__ = ["Printed", "TooLong", "printed_why", "reached_why", "triggers"]
