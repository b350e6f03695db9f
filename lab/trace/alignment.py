"""What changed between two sequences of calls: the fewest that were removed and added, repeated ones told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

LONGEST = 4000
"""Calls of each run that are aligned; aligning takes time with the square of it."""


@dataclass(slots=True)
class Change:
    """Calls that one run made where the other made others."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    before: int
    """Position in the first run, from 0."""
    after: int
    """Position in the second run, from 0."""
    times: int = 1
    """How often the same change comes, here for the first time."""


def align(before: Sequence[str], after: Sequence[str]) -> tuple[list[Change], bool]:
    """The changes between the calls of a rank, as text, and whether there were too many to compare to their ends."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, second = before[start : len(before) - end], after[start : len(after) - end]
    cut = max(len(first), len(second)) > LONGEST
    matcher = SequenceMatcher(None, first[:LONGEST], second[:LONGEST], autojunk=False)
    changes: dict[tuple[tuple[str, ...], tuple[str, ...]], Change] = {}
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            continue
        key = tuple(first[i1:i2]), tuple(second[j1:j2])
        if key in changes:
            changes[key].times += 1
        else:
            changes[key] = Change(*key, start + i1, start + j1)
    return list(changes.values()), cut
