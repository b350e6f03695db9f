"""Which nodes a run has: it goes on without those that its launcher can do without, and takes in those that come."""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.engine.protocol import Channel, Engine
from lab.errors import LabError
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.plan.plan import Plan
from lab.plan.present import HOST
from lab.record import events
from lab.run.collect import Collector
from lab.run.conversation import Conversation
from lab.run.lock import nodes_lock


class Members:
    """The nodes of one run.

    Args:
        plan: says on which nodes it may run, and how many it needs.
        engine: of the cluster.
        cluster: None where nodes never come.
        agents: of the nodes that it has.
        collector: takes what they say.
        begin: has the agent of a node take part, which knows nothing of the run yet.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        cluster: ClusterInfo | None,
        agents: Conversation,
        collector: Collector,
        begin: Callable[[str], object],
    ) -> None:
        self._planned = {worker.node for worker in plan.workers}
        self._least = plan.launcher.least_nodes(plan.nnodes)
        self._engine = engine
        self._cluster = cluster
        self._agents = agents
        self._collector = collector
        self._begin = begin
        self._came: list[Channel] = []

    @property
    def enough(self) -> bool:
        """Whether the launcher goes on with the nodes that are there."""
        there = self._agents.alive
        return len(there) >= self._least and HOST in there

    def look(self) -> None:
        """Take in nodes of the run that run and are not there: they were stopped and are started, or were late."""
        missing = self._planned - self._agents.alive.keys()
        if not missing or self._cluster is None or self._least == len(self._planned):
            return
        if nodes_lock(self._engine.name, self._cluster.name).holder() is not None:
            return  # one may just be starting
        try:
            found = self._engine.find(self._cluster.name)
        except LabError:  # what becomes of the run is seen by its own nodes
            return
        for node in found[0].nodes if found else ():
            if node.name in missing and node.state == RUNNING:
                self._take_in(node)

    def bring_back(self) -> None:
        """Start those that were lost, and have them take part again.

        Raises:
            LabError: one does not start.
        """
        missing = self._planned - self._agents.alive.keys()
        if missing and self._cluster is not None:
            lost = [node for node in self._cluster.nodes if node.name in missing]
            from lab.engine.capability import PowerControl, capable

            capable(self._engine, PowerControl).start(self._cluster, lost, announce=lambda _: None)
            for found in self._engine.find(self._cluster.name)[:1]:
                for node in found.nodes:
                    if node.name in missing:
                        self._take_in(node)

    def _take_in(self, node: Node) -> None:
        assert self._cluster is not None
        try:
            (channel,) = self._engine.connect(self._cluster, [node])
        except LabError:  # it is gone again
            return
        self._came.append(channel)
        self._agents.add(channel)
        for told in (self._collector.claimed, self._collector.prepared, self._collector.finished):
            told.discard(node.name)
        self._collector.fact(events.NodeCame(time.time(), node.name))
        self._begin(node.name)

    def close(self) -> None:
        """Let go of the channels to those that came."""
        for channel in self._came:
            channel.close()
