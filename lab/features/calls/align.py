"""Two sequences of calls, aligned so that few have gone or come, by Myers' O(ND) algorithm.

As few as possible it is where they differ in no more than some hundred places; beyond, so many are aligned at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MOST_EDITS = 600
"""Calls that have gone or come and are looked at together; time and memory go with the square of it."""


class Stretch(NamedTuple):
    """Calls of two runs from one place to another: the same ones, or those that stand in their place."""

    same: bool
    i1: int
    """Its beginning in the first run, from 0."""
    i2: int
    """Its end there."""
    j1: int
    """Its beginning in the second run."""
    j2: int


def stretches(before: Sequence[str], after: Sequence[str]) -> list[Stretch]:
    """What is the same in both and what is not, in order."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, second = before[start : len(before) - end], after[start : len(after) - end]
    known = [(i, i) for i in range(start)]
    known += [(start + i, start + j) for i, j in _pairs(first, second)]
    known += [(len(before) - left, len(after) - left) for left in range(end, 0, -1)]
    return list(_joined(known, len(before), len(after)))


def _joined(pairs: Sequence[tuple[int, int]], n: int, m: int) -> Iterator[Stretch]:
    """Pairs that follow each other as one stretch, and what lies between them."""
    i1 = j1 = 0  # where the last pair ended
    first = (0, 0)  # where those began that follow each other
    for i, j in [*pairs, (n, m)]:
        if (i, j) != (i1, j1):
            if first != (i1, j1):
                yield Stretch(True, first[0], i1, first[1], j1)
            yield Stretch(False, i1, i, j1, j)
            first = i, j
        i1, j1 = i + 1, j + 1
    if first != (n, m):
        yield Stretch(True, first[0], n, first[1], m)


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Which of both are the same, in order."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(text, len(numbers)) for text in first]
    b = [numbers.setdefault(text, len(numbers)) for text in second]
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        pairs, (far_i, far_j) = _aligned(a[i:], b[j:])
        found += ((i + one, j + other) for one, other in pairs)
        i, j = i + far_i, j + far_j
    return found


def _aligned(a: Sequence[int], b: Sequence[int]) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """The pairs from the beginnings on as far as so many have gone or come, and how far that is."""
    n, m = len(a), len(b)
    middle = _MOST_EDITS + 1
    furthest = [0] * (2 * middle + 1)  # in `a`, by diagonal
    steps: list[array[int]] = []
    far, needed = (0, 0), 1
    for edits in range(_MOST_EDITS + 1):
        steps.append(array("q", furthest[middle - edits - 1 : middle + edits + 2]))
        for diagonal in range(-edits + 2 * max(0, edits - m), edits - 2 * max(0, edits - n) + 1, 2):
            at = middle + diagonal
            down = diagonal == -edits or (diagonal != edits and furthest[at - 1] < furthest[at + 1])
            i = furthest[at + 1] if down else furthest[at - 1] + 1
            j = i - diagonal
            while i < n and j < m and a[i] == b[j]:
                i += 1
                j += 1
            furthest[at] = i
            if i <= n and j <= m and i + j >= sum(far):
                far, needed = (i, j), edits + 1
            if far == (n, m):
                return _way_back(steps, *far), far
    return _way_back(steps[:needed], *far), far


def _way_back(steps: Sequence[array[int]], i: int, j: int) -> list[tuple[int, int]]:
    """The pairs on the way that led to the end, from what was the furthest before each edit."""
    pairs = []
    for edits in range(len(steps) - 1, -1, -1):
        known, diagonal = steps[edits], i - j
        at = diagonal + edits + 1
        down = diagonal == -edits or (diagonal != edits and known[at - 1] < known[at + 1])
        from_i = known[at + 1] if down else known[at - 1]
        from_j = from_i - diagonal - (1 if down else -1)
        first_i = 0 if edits == 0 else from_i if down else from_i + 1
        while i > first_i:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        i, j = from_i, from_j
    return pairs[::-1]
