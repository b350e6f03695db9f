"""Clusters that were made for one run whose command is dead: whoever makes a cluster next removes them."""

from __future__ import annotations

from lab.engine.protocol import Announce, Engine
from lab.engine.ready import idle_s
from lab.errors import LabError
from lab.run.drive import LEASE_S
from lab.run.lock import ClusterLock


def reap(engine: Engine, announce: Announce) -> None:
    """Remove the owner's clusters that nobody will come back for."""
    for cluster in engine.find():
        lock = ClusterLock(engine.name, cluster.name)
        if cluster.run is None or lock.holder() is not None:
            continue
        try:
            with lock.held("removing what a dead run left"):
                if lock.crashed or idle_s(engine, cluster) > LEASE_S:
                    engine.remove(cluster.name, settle=True)
                    announce(f"removed cluster {cluster.name}: it was made for run {cluster.run}, which is dead")
        except LabError as error:  # somebody else is at it, or it cannot be removed: the new cluster is another one
            announce(f"warning: cluster {cluster.name}, left by a dead run, is still there: {error.message}")
