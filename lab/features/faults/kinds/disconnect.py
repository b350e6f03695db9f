"""The network cable of a node is pulled out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab.engine.protocol import Need
from lab.features.faults.cable import is_out, plug_in, pull_out
from lab.features.faults.kind import Ground, ReadBack
from lab.features.faults.node_fault import NodeFault


@dataclass(frozen=True, kw_only=True)
class Disconnect(NodeFault):
    """Nobody reaches the node and it reaches nobody; its processes go on, and its connections stay open."""

    does: ClassVar[str] = (
        "a node's network cable is out: its ranks go on and reach nobody; plugged in again it has the same address"
    )
    example: ClassVar[str] = "disconnect: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("node_disconnected", "cut_off")
    passes: ClassVar[bool] = True
    needs: ClassVar[Need] = "cable"

    def apply(self, ground: Ground) -> None:
        """Pull the cable out."""
        pull_out(ground, self.node)

    def undo(self, ground: Ground) -> None:
        """Plug it in; a node that does not run gets a new one when it starts."""
        if ground.running(self.node):
            plug_in(ground, self.node)

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it is out."""
        return ReadBack(is_out(ground, self.node))


KIND = Disconnect
