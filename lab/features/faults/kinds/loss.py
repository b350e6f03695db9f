"""Packets are lost."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.kind import Chance, FaultKind
from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import Broken, Link
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Loss(OnLink):
    """Each packet is dropped by chance, where it arrives: whoever sent it is not told."""

    does: ClassVar[str] = "packets are lost by chance"
    example: ClassVar[str] = "loss: node2 5%"

    share: float = key(MISSING, kinds.share(), "share: 5%")
    """How many of them."""

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """A node that loses many packets, both ways."""
        return cls(link=Link(chance.one_of(chance.nodes)), share=chance.one_of((0.05, 0.2)))

    def condition(self) -> Broken:
        """Packets that are lost."""
        return Broken(loss=self.share)


KIND = Loss
