"""Stopping and starting single nodes of a cluster, whoever uses it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lab.errors import ClusterBusy
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo
from lab.run.lock import ClusterLock, nodes_lock
from lab.run.place import Place


class Powered:
    """What `Cluster` has that cuts the power of its nodes, and gives it back."""

    _lock: ClusterLock
    _place: Place

    def existing(self) -> ClusterInfo:
        """The cluster as the engine sees it now, which has to be there.

        Raises:
            ClusterUnfit: it is not.
        """
        return self._place.existing()

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
        with self._changing("lab stop") as info:
            self._place.engine.stop([node for node in info.named(*nodes) if node.state != STOPPED])
            return self._place.existing()

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
        with self._changing("lab start") as info:
            wanted = info.named(*nodes) if nodes else [node for node in info.nodes if node.state == STOPPED]
            down = [node for node in wanted if node.state != RUNNING]
            self._place.engine.start(info, down, announce=self._place.announce)
            return self._place.existing()

    @contextmanager
    def _changing(self, purpose: str) -> Iterator[ClusterInfo]:
        """Hold the cluster where nobody has it; beside a run, only against others who change nodes."""
        with nodes_lock(self._place.engine.name, self._place.name).held(purpose), self._beside_runs(purpose):
            yield self._place.existing()

    @contextmanager
    def _beside_runs(self, purpose: str) -> Iterator[None]:
        """Hold the cluster where nobody has it; not beside those who make, change or remove it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock.held(purpose, exclusive=True))
            except ClusterBusy:
                if (self._lock.holder() or {}).get("exclusive"):
                    raise
            yield
