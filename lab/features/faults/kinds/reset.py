"""Connections are reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Chance, FaultKind, Harm
from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import Broken, Link


@dataclass(frozen=True, kw_only=True)
class Reset(OnLink):
    """Open TCP connections are reset, for both ends; who uses one, or wants a new one, gets its reset for an answer."""

    does: ClassVar[str] = "TCP connections are reset, and new ones refused"
    example: ClassVar[str] = "reset: node2 - node0"
    shown_as: ClassVar[tuple[str, ...]] = ("connection_reset", "connection_lost")

    harm: ClassVar[Harm] = "loses"
    passes: ClassVar[bool] = True

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """One link, both ways."""
        if len(chance.nodes) == 1:
            return None
        node = chance.one_of(chance.nodes)
        return cls(link=Link(node, "-", chance.one_of([name for name in chance.nodes if name != node])))

    def condition(self) -> Broken:
        """A link that resets."""
        return Broken(reset=1.0)


KIND = Reset
