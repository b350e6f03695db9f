"""A node stands still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Ground, Harm, ReadBack
from lab.features.faults.node_fault import NodeFault


@dataclass(frozen=True, kw_only=True)
class Pause(NodeFault):
    """No process of the node gets any time; its kernel goes on to acknowledge what peers send."""

    does: ClassVar[str] = "all processes of a node stand still, its agent too; they go on when that is healed"
    example: ClassVar[str] = "pause: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("node_paused",)
    harm: ClassVar[Harm] = "slows"

    def apply(self, ground: Ground) -> None:
        """Have them stand still."""
        ground.pause(self.node)

    def undo(self, ground: Ground) -> None:
        """Have them go on."""
        ground.resume(self.node)

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether they stand still."""
        return ReadBack(ground.paused(self.node))


KIND = Pause
