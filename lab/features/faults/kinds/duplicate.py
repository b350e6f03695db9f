"""Packets arrive twice."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import Broken
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Duplicate(OnLink):
    """Each packet is sent a second time by chance."""

    does: ClassVar[str] = "packets arrive twice by chance"
    example: ClassVar[str] = "duplicate: node2 10%"

    share: float = key(MISSING, kinds.share(), "share: 10%")
    """How many of them."""

    def condition(self) -> Broken:
        """Packets that are doubled."""
        return Broken(duplicate=self.share)


KIND = Duplicate
