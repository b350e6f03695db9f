"""The idle engine: local nodes that run when nobody else wants the processor."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from lab.engine.agent_holder import agent_pid
from lab.engine.local.engine import LocalEngine
from lab.engine.ownership import forget_cluster, register_cluster
from lab.engine.protocol import Announce, Removed
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab_idle.keys import LEAST


@runtime_checkable
class NicenessControl(Protocol):
    """Changes the niceness of nodes: a capability that this package adds."""

    def be_nice(self, node: Node, niceness: int) -> None:
        """Change it for the agent of a node, and so for all workers that it starts from now on."""


class IdleEngine(LocalEngine):
    """Clusters of process groups on this machine, with a niceness of 1 or more."""

    name = "idle"

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(f"{self.home}-idle")

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part."""
        return [replace(info, engine=self.name) for info in super().find(cluster)]

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        register_cluster(self.name, cluster, self.home / cluster)
        made = super().create(cluster, shape, run=run, announce=announce)
        for node in made.nodes:
            self.be_nice(node, LEAST)
        return replace(made, engine=self.name)

    def be_nice(self, node: Node, niceness: int) -> None:
        """Change how far behind others a node is."""
        os.setpriority(os.PRIO_PROCESS, agent_pid(node), niceness)

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them."""
        removed = super().remove(cluster, settle=settle)
        for name in removed.clusters:
            forget_cluster(self.name, name)
        return removed
