"""What repeats in a sequence, written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Repeated(NamedTuple):
    """Items that come several times, one round after the other."""

    times: int
    items: list[str | Repeated]


def fold(items: Sequence[str], longest: int) -> list[str | Repeated]:
    """The items with what repeats put together, rounds of up to so many items; rounds may hold rounds."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[item].append(place)
    turn = dict.fromkeys(places, 0)
    folded: list[str | Repeated] = []
    at = 0
    while at < len(items):
        item = items[at]
        found = places[item]
        while found[turn[item]] < at:
            turn[item] += 1
        again = found[turn[item] + 1 : turn[item] + 1 + longest]
        period, times = _repetition(items, at, [place - at for place in again if place - at <= longest])
        if times == 1:
            folded.append(item)
        else:
            inside = items[at : at + period]
            folded.append(Repeated(times, [item] if period == 1 else fold(inside, longest)))
        at += period * times
    return folded


def _repetition(items: Sequence[str], at: int, periods: Sequence[int]) -> tuple[int, int]:
    """How many items from a place on repeat, and how often: what covers most, then the shortest; (1, 1) for none."""
    best = (1, 1)
    for period in periods:
        times = 1
        while _same(items, at, at + times * period, period):
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def _same(items: Sequence[str], first: int, second: int, length: int) -> bool:
    return second + length <= len(items) and all(items[first + i] == items[second + i] for i in range(length))
