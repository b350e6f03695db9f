"""Connections are reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.fault.kind import Harm
from lab.fault.link_fault import OnLink
from lab.fault.links import Broken


@dataclass(frozen=True, kw_only=True)
class Reset(OnLink):
    """Whoever uses a TCP connection gets its reset for an answer, and so does who wants a new one."""

    does: ClassVar[str] = "TCP connections are reset as soon as they are used, and new ones refused"
    example: ClassVar[str] = "reset: node2 - node0"
    shown_as: ClassVar[tuple[str, ...]] = ("connection_reset", "connection_lost")

    harm: ClassVar[Harm] = "loses"

    def condition(self) -> Broken:
        """A link that resets."""
        return Broken(reset=1.0)


KIND = Reset
