"""What dead commands left, clusters made for one run and parts of any: whoever makes a cluster next removes it."""

from __future__ import annotations

from lab.engine.protocol import Announce, Engine
from lab.engine.ready import idle_s
from lab.errors import LabError
from lab.plan.cluster import ClusterInfo
from lab.run.drive import LEASE_S
from lab.run.lock import ClusterLock


def reap(engine: Engine, announce: Announce) -> None:
    """Remove the owner's clusters, and what is left of them, that nobody will come back for."""
    found: dict[str, ClusterInfo | None] = {info.name: info for info in engine.find() if info.run is not None}
    found |= dict.fromkeys(engine.nodeless())
    for name, cluster in found.items():
        lock = ClusterLock(engine.name, name)
        if lock.holder() is not None:
            continue
        try:
            with lock.held("removing what a dead command left"):
                if lock.crashed or (cluster is not None and idle_s(engine, cluster) > LEASE_S):
                    engine.remove(name, settle=True)
                    announce(f"removed cluster {name}: {_why(cluster)}")
        except LabError as error:  # somebody else is at it, or it cannot be removed: the new cluster is another one
            announce(f"warning: cluster {name}, left by a dead command, is still there: {error.message}")


def _why(cluster: ClusterInfo | None) -> str:
    return f"it was made for run {cluster.run}, which is dead" if cluster else "whoever was making it is dead"
