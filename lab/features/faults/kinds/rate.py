"""Links are slow."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.kind import Chance, FaultKind
from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import FASTEST, SLOWEST, Broken, Link
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Rate(OnLink):
    """So much leaves in a second, and no more."""

    does: ClassVar[str] = "so much is sent in a second and no more: by a node to all others together, or on one link"
    example: ClassVar[str] = "rate: node2 100mbit"

    at: float = key(MISSING, kinds.rate(SLOWEST, FASTEST), "at: 100mbit")
    """Bits a second."""

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """A node that is on a slow network."""
        return cls(link=Link(chance.one_of(chance.nodes)), at=chance.one_of((1e6, 10e6, 100e6)))

    def condition(self) -> Broken:
        """A slow link."""
        return Broken(rate_bits_per_s=self.at)


KIND = Rate
