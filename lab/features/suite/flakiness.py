"""How often repeated cases came to which end, and with which seeds. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.features.suite.outcome import Outcome

_Z = 1.959964
"""Of the normal distribution, for 95%."""
_VARIES = re.compile(
    r"\d+(?:[.,]\d+)*\s?(?:µs|ms|s|h|m(?: \d+s)?|B|kB|MB|GB|KiB|MiB|GiB|TB)\b|0x[0-9a-f]+|\b\d+\.\d+(?:e[+-]?\d+)?\b"
    r"|(?<=\[pid )\d+|(?<=port )\d+|(?<=:)\d{4,5}\b"
)
"""What differs from run to run of one and the same failure: times, sizes, addresses, ports, measured numbers."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way in which repetitions of a case ended other than passed."""

    status: str
    reason: str
    """That of the first; the others' differ at most in times, sizes, addresses and measured numbers."""
    count: int
    seeds: tuple[int, ...]
    """Of all of them."""
    record: str | None
    """Of the first."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**vars(self), "seeds": list(self.seeds)}


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What came of all repetitions of one case."""

    name: str
    ran: int
    failed: int
    """How many did not pass at the first attempt."""
    kinds: tuple[Kind, ...]
    """The most frequent first."""

    @property
    def part(self) -> float:
        """Part that failed."""
        return self.failed / self.ran

    @property
    def bounds(self) -> tuple[float, float]:
        """Between these the part would lie in the long run, in 95 of 100 such hunts (Wilson's interval)."""
        return wilson(self.failed, self.ran)

    @property
    def differs(self) -> bool:
        """Whether repetitions came to different ends."""
        return len(self.kinds) + (self.failed < self.ran) > 1

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        low, high = self.bounds
        numbers = {"name": self.name, "ran": self.ran, "failed": self.failed, "part": self.part}
        return {**numbers, "between": [low, high], "kinds": [kind.to_json() for kind in self.kinds]}


def rates(outcomes: Iterable[Outcome]) -> list[Rate]:
    """The rate of each case that ran, in the order in which they came first."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.attempts:
            by_name.setdefault(outcome.case.name, []).append(outcome)
    return [
        Rate(name=name, ran=len(ran), failed=sum(not one.good for one in ran), kinds=_kinds(ran))
        for name, ran in by_name.items()
    ]


def _kinds(ran: Sequence[Outcome]) -> tuple[Kind, ...]:
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for one in sorted(ran, key=lambda outcome: outcome.case.repetition):
        if not one.good:
            alike.setdefault((one.status, what_stays(one.telling.result.reason)), []).append(one)
    kinds = [
        Kind(
            status=status,
            reason=found[0].telling.result.reason,
            count=len(found),
            seeds=tuple(one.case.seed for one in found if one.case.seed is not None),
            record=str(found[0].telling.result.path) if found[0].telling.result.path else None,
        )
        for (status, _), found in alike.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.count))


def what_stays(reason: str) -> str:
    """A reason without what differs from run to run of the same failure."""
    return _VARIES.sub("…", reason)


def wilson(count: int, of: int) -> tuple[float, float]:
    """The interval in which a part lies with 95% confidence, from so many of so many."""
    if of == 0:
        return 0.0, 1.0
    part, square = count / of, _Z * _Z
    middle = (part + square / (2 * of)) / (1 + square / of)
    half = _Z * math.sqrt(part * (1 - part) / of + square / (4 * of * of)) / (1 + square / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if count == 0 else low), (1.0 if count == of else high)
