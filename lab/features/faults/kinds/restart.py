"""A node loses its power and gets it back at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Ground, ReadBack
from lab.features.faults.node_fault import PowerLost


@dataclass(frozen=True, kw_only=True)
class Restart(PowerLost):
    """Everything on the node ends at once, and its agent comes back; a run goes on there if its launcher has it so."""

    does: ClassVar[str] = "a node is killed and started again at once: what ran there has ended"
    example: ClassVar[str] = "restart: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("node_lost", "killed")
    leaves_running: ClassVar[bool | None] = None

    def apply(self, ground: Ground) -> None:
        """Kill it, and start it again."""
        self.cut(ground)
        ground.start(self.node)

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it runs again."""
        return ReadBack(ground.running(self.node))


KIND = Restart
