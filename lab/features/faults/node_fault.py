"""Kinds that are done to a node."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.errors import LabError
from lab.features.faults.keyed import alone_or_mapping
from lab.features.faults.kind import Chance, FaultKind, Ground, ReadBack, key_of
from lab.spec.declare import key
from lab.spec.kinds import Kind, node


@dataclass(frozen=True, kw_only=True)
class NodeFault(FaultKind):
    """A kind whose value is the name of a node, or a mapping with the keys of the class."""

    node: str = key(MISSING, node(), "kill: node2")
    """The node that it is done to."""

    @classmethod
    def value(cls) -> Kind:
        """The name of a node, or a mapping with that and what else there is to say."""
        return alone_or_mapping(cls, "node", node().allowed)

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """One on any node."""
        return cls(node=chance.one_of(chance.nodes))

    @property
    def nodes(self) -> tuple[str, ...]:
        """That node."""
        return (self.node,)

    def __str__(self) -> str:
        """`kill node2`."""
        return f"{key_of(type(self))} {self.node}"


@dataclass(frozen=True, kw_only=True)
class PowerLost(NodeFault):
    """A kind after which the node does not run; healed, it runs again."""

    shown_as: ClassVar[tuple[str, ...]] = ("node_lost",)
    leaves_running: ClassVar[bool | None] = False

    def cut(self, ground: Ground) -> None:
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
