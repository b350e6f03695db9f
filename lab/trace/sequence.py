"""The first place at which the calls of a rank are not those that a scenario states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.spec.calls import ANYTHING, CallPattern
from lab.trace.model import Call, Group
from lab.trace.notation import fits


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Where a rank left what was stated."""

    expected: CallPattern | None
    """The call that was due; None where there were no more."""
    got: Call | None
    """What came instead; None where the rank called nothing more."""
    after_gap: bool = False
    """Whether `...` stood before `expected`: it was waited for until the end, and `got` is None."""


def first_departure(
    stated: Sequence[CallPattern], calls: Sequence[Call], groups: Mapping[str, Group]
) -> Departure | None:
    """Where calls differ from what was stated; None if they do not.

    Where `...` leaves several ways to read the calls, the one that gets furthest counts.
    """
    places = _open(stated, {0})
    furthest, at = max(places), 0
    for number, call in enumerate(calls):
        after = {place for place in places if place < len(stated) and stated[place] is ANYTHING}
        for place in places:
            pattern = stated[place] if place < len(stated) else ANYTHING
            if pattern is not ANYTHING and fits(call, pattern, groups):
                after.add(place + 1)
        places = _open(stated, after)
        if not places:
            break
        if max(places) > furthest:
            furthest, at = max(places), number + 1
    if len(stated) in places:
        return None
    expected = stated[furthest] if furthest < len(stated) else None
    if furthest > 0 and stated[furthest - 1] is ANYTHING:
        return Departure(expected=expected, got=None, after_gap=True)
    return Departure(expected=expected, got=calls[at] if at < len(calls) else None)


def _open(stated: Sequence[CallPattern], places: set[int]) -> set[int]:
    """The places with those behind each `...`, which may stand for nothing."""
    found = set(places)
    for place in sorted(places):
        while place < len(stated) and stated[place] is ANYTHING:
            place += 1
            found.add(place)
    return found
