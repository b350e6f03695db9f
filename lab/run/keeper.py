"""Clusters that live as long as a process does, their keeper: when it is dead, anybody can tell, however it died."""

from __future__ import annotations

from lab.engine.protocol import Engine
from lab.errors import ClusterBusy
from lab.run.lock import ClusterLock, nodes_lock


def keeper_lock(engine: str, cluster: str) -> ClusterLock:
    """The lock that a keeper holds from before a cluster is made until it is removed, or is to stay."""
    return ClusterLock(engine, f"{cluster}.keeper")


def keeper_died(engine: str, cluster: str) -> bool:
    """Whether a cluster had a keeper that died before it removed it."""
    return keeper_lock(engine, cluster).abandoned()


def remove_orphan(engine: Engine, cluster: str, keeper: int | None = None) -> bool:
    """Remove a cluster whose keeper is dead, and what tells of it; says whether it was, for somebody may keep it now.

    Args:
        engine: where it is.
        cluster: its name.
        keeper: the dead process, where that is known for sure: what it has forked may still hold its locks.

    Raises:
        LabError: it cannot be removed.
    """
    lock = keeper_lock(engine.name, cluster)
    try:
        with lock.held("removing what a dead process kept"):
            engine.remove(cluster, settle=True)
            forget(engine.name, cluster)
    except ClusterBusy:
        if keeper is None or (lock.holder() or {}).get("pid") != keeper:
            return False
        engine.remove(cluster, settle=True)
    return True


def forget(engine: str, cluster: str) -> None:
    """Take away the locks of a cluster that is gone and whose name nobody will use again; by who holds its keeper's."""
    for lock in (ClusterLock(engine, cluster), nodes_lock(engine, cluster), keeper_lock(engine, cluster)):
        lock.path.unlink(missing_ok=True)
