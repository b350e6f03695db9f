"""The disk of a node is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Ground, ReadBack
from lab.features.faults.node_fault import NodeFault


@dataclass(frozen=True, kw_only=True)
class DiskFull(NodeFault):
    """Ranks of the node that write to a file are told that there is no space left; a mapped file is not noticed."""

    does: ClassVar[str] = "ranks of a node that write to a file are told that no space is left on the disk"
    example: ClassVar[str] = "disk_full: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("disk_full",)
    of_writes: ClassVar[bool] = True

    def apply(self, ground: Ground) -> None:
        """Have their writes refused."""
        ground.ask(self.node, "disk", {"full": True})

    def undo(self, ground: Ground) -> None:
        """Have them done again."""
        if ground.running(self.node):
            ground.take_back(self.node, "disk", {"full": True})

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether they are refused."""
        return ReadBack(bool(ground.look_at(self.node, "disk", {}).get("full")))


KIND = DiskFull
