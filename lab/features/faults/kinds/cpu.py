"""A node gets only a part of the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import ClassVar

from lab.engine.protocol import Need
from lab.features.faults.kind import Chance, FaultKind, Ground, Harm, ReadBack
from lab.features.faults.node_fault import NodeFault
from lab.spec.declare import key
from lab.spec.kinds import number


@dataclass(frozen=True, kw_only=True)
class Cpu(NodeFault):
    """Healed, it may use what it was made with."""

    does: ClassVar[str] = "a node gets so many cores of the processor and no more, as beside a greedy neighbour"
    example: ClassVar[str] = "cpu: {node: node1, cores: 0.2}"
    shown_as: ClassVar[tuple[str, ...]] = ("straggler", "late")
    harm: ClassVar[Harm] = "slows"
    needs: ClassVar[Need] = "limits"
    cores: float = key(MISSING, number("cores, more than 0", above=0.0, high=4096.0), "cpu: {node: node1, cores: 0.2}")
    """How many, such as 0.5."""

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """A fifth of a core on any node."""
        return cls(node=chance.one_of(chance.nodes), cores=0.2)

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`node1 0.2`."""
        return f"{{node: {words[0]}, cores: {words[1]}}}" if len(words) == 2 else super().parse(words)

    def apply(self, ground: Ground) -> None:
        """Let it use no more."""
        ground.limit(self.node, cpus=self.cores)

    def undo(self, ground: Ground) -> None:
        """Let it use as much as before."""
        if ground.running(self.node):
            ground.unlimit(self.node, cpus=True)

    def read_back(self, ground: Ground) -> ReadBack:
        """What it may use now."""
        found = ground.throttle(self.node)
        return ReadBack(abs(found["cpus"] - self.cores) < 0.01, {"cpus": found["cpus"]})

    def __str__(self) -> str:
        """`cpu of 0.2 cores for node1`."""
        return f"cpu of {self.cores:g} cores for {self.node}"


KIND = Cpu
