"""A node gets only a part of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.engine.protocol import Need
from lab.features.faults.kind import Chance, FaultKind, Ground, Harm, ReadBack
from lab.features.faults.node_fault import NodeFault
from lab.spec.declare import key
from lab.spec.kinds import size
from lab.words import format_limit


@dataclass(frozen=True, kw_only=True)
class Memory(NodeFault):
    """Healed, it may use what it was made with."""

    does: ClassVar[str] = "a node gets so much memory and no more: what does not fit is killed"
    example: ClassVar[str] = "memory: {node: node1, limit: 300MiB}"
    shown_as: ClassVar[tuple[str, ...]] = ("out_of_memory", "node_lost")
    harm: ClassVar[Harm] = "loses"
    needs: ClassVar[Need] = "limits"
    limit_bytes: int = key(MISSING, size(6 << 20, 1 << 50), "memory: {node: node1, limit: 300MiB}", name="limit")
    """How much."""

    @classmethod
    def drawn(cls, _: Chance) -> FaultKind | None:
        """None: what is too little depends on the script."""
        return None

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`node1 300MiB`."""
        return f"{{node: {words[0]}, limit: {words[1]}}}" if len(words) == 2 else super().parse(words)

    def apply(self, ground: Ground) -> None:
        """Let it use no more."""
        ground.limit(self.node, memory_bytes=self.limit_bytes)

    def undo(self, ground: Ground) -> None:
        """Let it use as much as before."""
        if ground.running(self.node):
            ground.unlimit(self.node, memory=True)

    def read_back(self, ground: Ground) -> ReadBack:
        """What it may use now."""
        found = ground.throttle(self.node)
        return ReadBack(found["memory_bytes"] == self.limit_bytes, {"memory_bytes": found["memory_bytes"]})

    def __str__(self) -> str:
        """`memory of 300 MiB for node1`."""
        return f"memory of {format_limit(self.limit_bytes)} for {self.node}"


KIND = Memory
