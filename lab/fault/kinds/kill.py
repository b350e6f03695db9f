"""A node loses its power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.errors import LabError
from lab.fault.kind import Ground, NodeFault, ReadBack


@dataclass(frozen=True, kw_only=True)
class Kill(NodeFault):
    """Everything on the node ends at once; its peers see their connections closed."""

    does: ClassVar[str] = "a node is killed, as by a power cut; when the run is over it gets its power back"
    example: ClassVar[str] = "kill: node2"
    leaves_running: ClassVar[bool | None] = False

    def apply(self, ground: Ground) -> None:
        """Kill the node, where it runs."""
        try:
            ground.kill(self.node)
        except (LabError, OSError):
            if ground.running(self.node):
                raise

    def undo(self, ground: Ground) -> None:
        """Start it again."""
        if not ground.running(self.node):
            ground.start(self.node)

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it does not run."""
        return ReadBack(not ground.running(self.node))


KIND = Kill
