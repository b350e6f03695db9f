"""Remove clusters whose keeper died: a separate process that outlives the keepers, however they end.

A keeper holds a lock for each cluster that it keeps. When the keeper is gone, the guard removes these clusters.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from lab.engine.ownership import state_folder
from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterBusy, LabError
from lab.run.lock import ClusterLock, nodes_lock


def start_guard() -> subprocess.Popen[bytes]:
    """Start the guard of this process's clusters; it begins to remove them at the end of its input.

    It has its own session, so Ctrl-C does not reach it, and inherits no file that it could keep open.
    """
    from lab.features.recording.environment import start_python  # the guard itself does not need it

    program = f"from lab.features.pytest.guard import main; main({os.getpid()})"
    return start_python(program, stdin=subprocess.PIPE, cwd="/")


def main(keeper: int) -> None:
    """Wait for the end of the keeper, or of the input, then remove the clusters that the keeper has not released."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waiting = [0]
    with suppress(AttributeError, OSError):  # not supported here, or it is dead already
        waiting.append(os.pidfd_open(keeper))  # its children can keep the pipe open after its end
    select.select(waiting, [], [])
    for path in (state_folder() / "locks").glob(f"*{_KEEPER}.lock"):
        engine, _, cluster = path.name.removesuffix(f"{_KEEPER}.lock").partition("-")
        if keeper_lock(engine, cluster).inspect()[1].get("pid") == keeper:
            from lab.engine.select import open_engine

            with suppress(Exception):  # the next command that makes a cluster tries again
                remove_orphan(open_engine(engine), cluster, keeper)


_KEEPER = ".keeper"


def keeper_lock(engine: str, cluster: str) -> ClusterLock:
    """Return the lock that a keeper holds until it removes or releases its cluster."""
    return ClusterLock(engine, f"{cluster}{_KEEPER}")


def is_orphan(engine: str, cluster: str) -> bool:
    """Return whether the keeper of a cluster died before it removed the cluster."""
    is_kept, left = keeper_lock(engine, cluster).inspect()
    return bool(left) and not is_kept


def remove_orphans(engine: Engine, clusters: Iterable[str], announce: Announce) -> list[str]:
    """Remove unused clusters that have lost their keeper; return all that have lost theirs."""
    orphans = [name for name in clusters if is_orphan(engine.name, name)]
    for name in orphans:
        try:
            if ClusterLock(engine.name, name).holder() is None and remove_orphan(engine, name):
                announce(f"removed cluster {name}: its process has died")
        except LabError as error:  # the new cluster is not affected
            announce(f"warning: cluster {name} of a dead process could not be removed: {error.message}")
    return orphans


def remove_orphan(engine: Engine, cluster: str, keeper: int | None = None) -> bool:
    """Remove a cluster whose keeper died, and its locks; return False if it has a new keeper.

    Args:
        engine: Engine of the cluster.
        cluster: Its name.
        keeper: The dead process, if known: its forked children can still hold its locks.

    Raises:
        LabError: It cannot be removed.
    """
    lock = keeper_lock(engine.name, cluster)
    try:
        with lock.held("removing the clusters of a dead process"):
            engine.remove(cluster, settle=True)
            remove_locks(engine.name, cluster)
    except ClusterBusy:
        if keeper is None or (lock.holder() or {}).get("pid") != keeper:
            return False
        engine.remove(cluster, settle=True)
    return True


def remove_locks(engine: str, cluster: str) -> None:
    """Remove the locks of a cluster that is gone for good; the caller holds its keeper's lock."""
    for lock in (ClusterLock(engine, cluster), nodes_lock(engine, cluster), keeper_lock(engine, cluster)):
        lock.path.unlink(missing_ok=True)
