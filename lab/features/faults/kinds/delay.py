"""Packets take longer."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.link_fault import OnLink
from lab.features.faults.links import LONGEST_DELAY_S, Broken
from lab.spec import kinds
from lab.spec.declare import key


@dataclass(frozen=True, kw_only=True)
class Delay(OnLink):
    """Each packet waits before it leaves."""

    does: ClassVar[str] = "packets take longer, one way, and there and back twice that; needs netem in the kernel"
    example: ClassVar[str] = "delay: node2 50ms jitter 5ms"

    by_s: float = key(MISSING, kinds.duration(LONGEST_DELAY_S), "by: 50ms", name="by")
    """How much longer, one way."""
    jitter_s: float | None = key(None, kinds.duration(LONGEST_DELAY_S), "jitter: 5ms", "none", name="jitter")
    """By how much that differs at most, from packet to packet."""

    def condition(self) -> Broken:
        """Late packets."""
        return Broken(delay_s=self.by_s, jitter_s=self.jitter_s)


KIND = Delay
