"""Bits are flipped."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import Broken
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Corrupt(OnLink):
    """A bit of each packet is flipped by chance, which the receiver's checksum finds: it drops the packet."""

    does: ClassVar[str] = (
        "a bit of a packet is flipped by chance, so that the receiver drops it; needs netem in the kernel"
    )
    example: ClassVar[str] = "corrupt: node2 1%"

    share: float = key(MISSING, kinds.share(), "share: 1%")
    """How many of them."""

    def condition(self) -> Broken:
        """Packets that are corrupted."""
        return Broken(corrupt=self.share)


KIND = Corrupt
