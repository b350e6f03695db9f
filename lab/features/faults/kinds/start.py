"""A node that does not run gets its power back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Chance, FaultKind, Ground, ReadBack
from lab.features.faults.node_fault import NodeFault


@dataclass(frozen=True, kw_only=True)
class Start(NodeFault):
    """The node comes back, and takes part again where the launcher takes it in."""

    does: ClassVar[str] = "a node that was stopped or killed gets its power back, as with `lab start`"
    example: ClassVar[str] = "start: node2"
    shown_as: ClassVar[tuple[str, ...]] = ()
    leaves_running: ClassVar[bool | None] = True

    @classmethod
    def drawn(cls, _: Chance) -> FaultKind | None:
        """None: it breaks nothing."""
        return None

    def apply(self, ground: Ground) -> None:
        """Start the node, where it does not run, and wait until its agent can fork workers."""
        if not ground.running(self.node):
            ground.start(self.node)

    def undo(self, ground: Ground) -> None:
        """Leave it: a node that runs is what a cluster has."""

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it runs."""
        return ReadBack(ground.running(self.node))


KIND = Start
