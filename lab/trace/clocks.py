"""The clocks of the ranks of a run: how each is read, and how wrong times are that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

SHARED_CLOCK_ERROR_S = 1e-6
"""Two reads of one clock by two processes."""


class Reading(NamedTuple):
    """How a clock is read."""

    offset: int = 0
    """Nanoseconds to be added to have the time since the run's first line,"""
    drift: float = 0.0
    """and so much of those that have passed"""
    since: int = 0
    """since it showed that."""

    def nanoseconds(self, shown: int) -> int:
        """The time since the run's first line when it showed that."""
        return shown + self.offset + (int((shown - self.since) * self.drift) if self.drift else 0)


class Clocks(NamedTuple):
    """How the times of the ranks are compared."""

    readings: Mapping[int, Reading] = {}
    """By rank."""
    origin_s: float = 0.0
    """Unix time of the first line."""
    names: Mapping[int, str] = {}
    """By rank: the same for those that share a clock."""
    errors: Mapping[int, float] = {}
    """By rank: seconds that its times may be off from those by the lab's clock."""

    def apart_s(self, ranks: Iterable[int]) -> float:
        """How wrong the times of any two of these ranks may be when they are compared; 0: they have the same clock."""
        worst: dict[str, float] = {}
        for rank in self.names.keys() & set(ranks):
            worst[self.names[rank]] = max(worst.get(self.names[rank], 0.0), self.errors[rank])
        return sum(sorted(worst.values())[-2:]) if len(worst) > 1 else 0.0

    @property
    def error_s(self) -> float:
        """The same of all."""
        return self.apart_s(self.names) or SHARED_CLOCK_ERROR_S

    @property
    def several(self) -> bool:
        """Whether there are any but one."""
        return len(set(self.names.values())) > 1
