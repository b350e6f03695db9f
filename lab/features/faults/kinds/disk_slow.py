"""The disk of a node is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.features.faults.keyed import alone_or_mapping
from lab.features.faults.kind import FaultKind, Ground, Harm, ReadBack
from lab.spec.declare import key
from lab.spec.kinds import Kind, duration, node

_LONGEST_S = 600


@dataclass(frozen=True, kw_only=True)
class DiskSlow(FaultKind):
    """Each write to a file, and each wait until one is on the disk, takes so much longer."""

    does: ClassVar[str] = "each write of a rank of a node to a file, and each fsync, takes longer"
    example: ClassVar[str] = "disk_slow: {node: node2, by: 50ms}"
    shown_as: ClassVar[tuple[str, ...]] = ("straggler", "late", "never_came", "never_entered")
    harm: ClassVar[Harm] = "slows"
    of_writes: ClassVar[bool] = True
    node: str = key(MISSING, node(), "disk_slow: {node: node2}")
    """The node."""
    by_s: float = key(0.1, duration(_LONGEST_S), "disk_slow: {node: node2, by: 50ms}", name="by")
    """How much longer."""

    @classmethod
    def value(cls) -> Kind:
        """The node, alone or with how much longer it takes."""
        return alone_or_mapping(cls, "node", "the name of a node")

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`node2`, or `node2 50ms`."""
        return f"{{node: {words[0]}, by: {words[1]}}}" if len(words) == 2 else super().parse(words)

    @property
    def nodes(self) -> tuple[str, ...]:
        """That node."""
        return (self.node,)

    def apply(self, ground: Ground) -> None:
        """Have their writes wait."""
        ground.ask(self.node, "disk", {"delay_s": self.by_s})

    def undo(self, ground: Ground) -> None:
        """Have them done at once again."""
        if ground.running(self.node):
            ground.take_back(self.node, "disk", {"delay_s": self.by_s})

    def read_back(self, ground: Ground) -> ReadBack:
        """How long they wait."""
        delay_s = ground.look_at(self.node, "disk", {}).get("delay_s", 0.0)
        return ReadBack(delay_s == self.by_s, {"asked_s": self.by_s, "delay_s": delay_s})

    def __str__(self) -> str:
        """`disk_slow node2 by 0.05s`."""
        return f"disk_slow {self.node} by {self.by_s:g}s"


KIND = DiskSlow
