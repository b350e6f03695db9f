"""A node loses its power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Ground
from lab.features.faults.node_fault import PowerLost


@dataclass(frozen=True, kw_only=True)
class Kill(PowerLost):
    """Everything on the node ends at once; its peers see their connections closed."""

    does: ClassVar[str] = "every process of a node is killed at once; its peers see their connections closed"
    example: ClassVar[str] = "kill: node2"

    def apply(self, ground: Ground) -> None:
        """Kill the node, where it runs."""
        self.cut(ground)


KIND = Kill
