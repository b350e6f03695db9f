"""What dead commands left, clusters made for one run and parts of any: whoever makes a cluster next removes it."""

from __future__ import annotations

from lab.engine.protocol import Announce, Engine
from lab.engine.ready import idle_s
from lab.errors import LabError
from lab.plan.cluster import ClusterInfo
from lab.run.drive import LEASE_S
from lab.run.keeper import keeper_died, remove_orphan
from lab.run.lock import ClusterLock


def reap(engine: Engine, announce: Announce) -> None:
    """Remove the owner's clusters, and what is left of them, that nobody will come back for."""
    there = engine.find()
    found: dict[str, ClusterInfo | None] = {info.name: info for info in there if info.run is not None}
    found |= dict.fromkeys(engine.nodeless())
    orphans = [name for name in (*found, *(info.name for info in there)) if keeper_died(engine.name, name)]
    for name in dict.fromkeys((*found, *orphans)):
        cluster, lock = found.get(name), ClusterLock(engine.name, name)
        if lock.holder() is not None:
            continue
        try:
            if name in orphans:
                if remove_orphan(engine, name):
                    announce(f"removed cluster {name}: whoever kept it is dead")
                continue
            with lock.held("removing what a dead command left", removes=True):
                if lock.crashed or (cluster is not None and idle_s(engine, cluster) > LEASE_S):
                    engine.remove(name, settle=True)
                    announce(f"removed cluster {name}: {_why(cluster)}")
        except LabError as error:  # somebody else is at it, or it cannot be removed: the new cluster is another one
            announce(f"warning: cluster {name}, left by a dead command, is still there: {error.message}")


def _why(cluster: ClusterInfo | None) -> str:
    return f"it was made for run {cluster.run}, which is dead" if cluster else "whoever was making it is dead"
