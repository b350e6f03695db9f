"""What faults are done to: the nodes of a cluster that stands, by its engine and its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.engine.protocol import Engine
from lab.errors import ClusterError
from lab.plan.cluster import ClusterInfo, Node


class ClusterGround:
    """See `lab.fault.kind.Ground`."""

    def __init__(self, engine: Engine, cluster: ClusterInfo) -> None:
        self.engine = engine.name
        self.addresses: Mapping[str, str] = {node.name: node.address for node in cluster.nodes}
        self._engine, self._cluster = engine, cluster

    def _node(self, name: str) -> Node:
        return self._cluster.named(name)[0]

    def running(self, node: str) -> bool:
        """Whether a node runs now."""
        return self._engine.node_state(self._node(node)).running

    def kill(self, node: str) -> None:
        """Cut its power."""
        self._engine.kill(self._node(node))

    def start(self, node: str) -> None:
        """Start it."""
        self._engine.start(self._cluster, [self._node(node)], announce=lambda _: None)

    def ask(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have its agent do something."""
        raise ClusterError(f"{node} cannot be asked to {deed} yet")
