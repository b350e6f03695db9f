"""A node vanishes without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.engine.protocol import Need
from lab.features.faults.cable import pull_out
from lab.features.faults.kind import Ground
from lab.features.faults.node_fault import PowerLost


@dataclass(frozen=True, kw_only=True)
class PowerOff(PowerLost):
    """The cable is out before everything ends: no peer is told that a connection was closed, as in a power cut."""

    does: ClassVar[str] = "a node vanishes as in a power cut: no peer is told that its connections were closed"
    example: ClassVar[str] = "power_off: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("node_lost", "cut_off")
    needs: ClassVar[Need] = "cable"

    def apply(self, ground: Ground) -> None:
        """Pull the cable out, then kill the node."""
        if ground.running(self.node):
            pull_out(ground, self.node)
            self.cut(ground)


KIND = PowerOff
