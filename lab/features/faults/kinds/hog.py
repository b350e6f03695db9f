"""The memory of a node is eaten up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.engine.protocol import Need
from lab.features.faults.keyed import alone_or_mapping
from lab.features.faults.kind import FaultKind, Ground, ReadBack
from lab.spec.declare import key
from lab.spec.kinds import Kind, node, size
from lab.words import format_limit

_PATIENCE_S = 20.0
_PAUSE_S = 0.05
_SLACK_BYTES = 8 << 20
"""What others free meanwhile is eaten a moment later."""


@dataclass(frozen=True, kw_only=True)
class Hog(FaultKind):
    """Somebody else on the node takes all memory but a little; where a rank wants more, the kernel kills the rank."""

    does: ClassVar[str] = "the memory of a node is eaten up, but for a little; its limit stays what it is"
    example: ClassVar[str] = "hog: {node: node2, leave: 64MiB}"
    shown_as: ClassVar[tuple[str, ...]] = ("out_of_memory", "node_lost")
    needs: ClassVar[Need] = "memory"
    node: str = key(MISSING, node(), "hog: {node: node2}")
    """The node."""
    leave_bytes: int = key(64 << 20, size(1 << 20, 1 << 40), "hog: {node: node2, leave: 64MiB}", "64MiB", name="leave")
    """What is left for everybody else."""

    @classmethod
    def value(cls) -> Kind:
        """The node, alone or with what is left."""
        return alone_or_mapping(cls, "node", "the name of a node")

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`node2`, or `node2 64MiB`."""
        return f"{{node: {words[0]}, leave: {words[1]}}}" if len(words) == 2 else super().parse(words)

    @property
    def nodes(self) -> tuple[str, ...]:
        """That node."""
        return (self.node,)

    def apply(self, ground: Ground) -> None:
        """Have its agent begin to eat, and wait until that is done."""
        ground.ask(self.node, "hog", {"left_bytes": self.leave_bytes})
        until = time.monotonic() + _PATIENCE_S
        while not self.read_back(ground).in_force and time.monotonic() < until:
            time.sleep(_PAUSE_S)

    def undo(self, ground: Ground) -> None:
        """Have it give everything back."""
        if ground.running(self.node):
            ground.take_back(self.node, "hog", {})

    def read_back(self, ground: Ground) -> ReadBack:
        """What is left."""
        found = ground.look_at(self.node, "hog", {})
        left_bytes = found["left_bytes"] or 0
        return ReadBack(
            bool(found["eats"]) and left_bytes < self.leave_bytes + _SLACK_BYTES, {"left_bytes": left_bytes}
        )

    def __str__(self) -> str:
        """`hog node2 to 67 MB`."""
        return f"hog {self.node} to {format_limit(self.leave_bytes)}"


KIND = Hog
