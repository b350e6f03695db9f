"""Packets overtake each other."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import LONGEST_DELAY_S, Broken
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Reorder(OnLink):
    """All packets are late but some, which so overtake the others."""

    does: ClassVar[str] = "packets overtake others, which are late; needs netem in the kernel"
    example: ClassVar[str] = "reorder: node2 25% by 10ms"

    share: float = key(MISSING, kinds.share(), "share: 25%")
    """How many overtake the others."""
    by_s: float = key(0.01, kinds.duration(LONGEST_DELAY_S), "by: 10ms", name="by")
    """How late the others are."""

    def condition(self) -> Broken:
        """Late packets, and some that are not."""
        return Broken(reorder=self.share, delay_s=self.by_s)


KIND = Reorder
