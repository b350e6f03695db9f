"""Stopping and starting single nodes of a cluster, whoever uses it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from lab.engine.capability import PowerControl, capable
from lab.errors import ClusterBusy
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo
from lab.run.lock import nodes_lock

if TYPE_CHECKING:
    from lab.run.lock import ClusterLock
    from lab.run.place import Place


class Powered:
    """What `Cluster` has that cuts the power of its nodes, and gives it back."""

    if TYPE_CHECKING:
        lock: ClusterLock
        place: Place

    def stop(self, *nodes: str) -> ClusterInfo:
        """Stop nodes as a power cut would, also while a run goes on; they stay so until they are started.

        Args:
            nodes: their names, such as `"node2"`.

        Returns:
            The cluster as it is then.

        Raises:
            UsageError: there is no node of such a name.
            ClusterUnfit: there is no cluster.
            ClusterBusy: somebody makes it, changes it or removes it.
        """
        with _changing(self, "lab stop") as info:
            capable(self.place.engine, PowerControl).stop(
                [node for node in info.named(*nodes) if node.state != STOPPED]
            )
            return self.place.existing()

    def start(self, *nodes: str) -> ClusterInfo:
        """Start nodes that do not run, and wait until they can take part in a run; one that goes on may take them in.

        Args:
            nodes: their names; none: all that were stopped.

        Returns:
            The cluster as it is then.

        Raises:
            UsageError: there is no node of such a name.
            ClusterUnfit: there is no cluster.
            ClusterBusy: somebody makes it, changes it or removes it.
            ClusterError: a node does not start; the message says why.
        """
        with _changing(self, "lab start") as info:
            wanted = info.named(*nodes) if nodes else [node for node in info.nodes if node.state == STOPPED]
            down = [node for node in wanted if node.state != RUNNING]
            capable(self.place.engine, PowerControl).start(info, down, announce=self.place.announce)
            return self.place.existing()


@contextmanager
def _changing(cluster: Powered, purpose: str) -> Iterator[ClusterInfo]:
    """Hold the cluster where nobody has it; beside a run, only against others who change nodes."""
    place = cluster.place
    with nodes_lock(place.engine.name, place.name).held(purpose), beside_runs(cluster, purpose):
        yield place.existing()


@contextmanager
def beside_runs(cluster: Powered, purpose: str) -> Iterator[None]:
    """Hold the cluster where nobody has it; not beside those who make, change or remove it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster.lock.held(purpose, exclusive=True))
        except ClusterBusy:
            if (cluster.lock.holder() or {}).get("exclusive"):
                raise
        yield
