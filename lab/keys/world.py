"""The ranks and nodes that a file may name."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lab.keys.kinds import Kind, read_text, whole_number
from lab.keys.problems import InvalidError, Reading
from lab.keys.value import Value

MAX_RANK = 1024 * 1024 - 1
"""Highest rank of the largest cluster that a scenario may ask for."""
NODE = "node(0|[1-9][0-9]{0,3})"
"""Pattern of a node's name."""


class World(NamedTuple):
    """What is known about the ranks of a run when its scenario is loaded."""

    nodes: int | None
    """None: whatever the cluster has."""
    nproc_per_node: int | None
    """None: whatever the cluster says."""

    @classmethod
    def of(cls, reading: Reading) -> World:
        """What a scenario says, whose other keys are being read."""
        return cls(reading.known.get("nodes"), reading.known.get("nproc_per_node"))

    @property
    def size(self) -> int | None:
        """Ranks of the run; None where the cluster decides."""
        return self.nodes * self.nproc_per_node if self.nodes and self.nproc_per_node else None

    @property
    def allowed(self) -> str:
        """The ranks that a scenario may name, for a person."""
        if self.size is None:
            return "a rank, 0 or more"
        return f"a rank from 0 to {self.size - 1} ({self.nodes} x {self.nproc_per_node} ranks)"


def rank() -> Kind:
    """A rank of the run."""

    def read(value: Value) -> Any:
        world = World.of(value.reading)
        try:
            return whole_number(0, (world.size or MAX_RANK + 1) - 1).read(value)
        except InvalidError:
            raise value.refused(world.allowed) from None

    return Kind("a rank, 0 or more", read, {"type": "integer", "minimum": 0})


def node() -> Kind:
    """A node of the run."""
    allowed = "the name of a node, such as node2"

    def read(value: Value) -> str:
        word, nodes = read_text(value, allowed), World.of(value.reading).nodes
        if not re.fullmatch(NODE, word) or (nodes and int(word.removeprefix("node")) >= nodes):
            raise value.refused(f"a node from node0 to node{nodes - 1}" if nodes else allowed)
        return word

    return Kind(allowed, read, {"type": "string", "pattern": f"^{NODE}$"})
