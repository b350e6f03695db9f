"""Removes clusters whose keeper is gone: a process of its own that outlives whoever keeps them, however that ends.

What a keeper keeps stands in the locks that it holds. When it is gone, what is left of these clusters is removed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lab.engine.ownership import state_folder
from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterBusy, LabError
from lab.run.lock import ClusterLock, nodes_lock


def start_guard() -> subprocess.Popen[bytes]:
    """Start the guard of what this process keeps; at the end of its input it does its work.

    It is in a session of its own, which no Ctrl-C reaches, and has nothing of ours that it could hold.
    """
    own = str(Path(__file__).parents[3])  # before a folder `lab` of somebody else
    path = [own, *map(os.path.abspath, sys.path)]
    program = f"import sys; sys.path[:] = {path!r}; from lab.features.pytest.guard import main; main({os.getpid()})"
    return subprocess.Popen(
        [sys.executable, "-S", "-c", program],  # its path is ours: no need to look for it
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def main(keeper: int) -> None:
    """Wait for the end of the keeper, or of the input, then remove the clusters that the keeper has not let go."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waiting = [0]
    with suppress(AttributeError, OSError):  # no such call here, or it is dead already
        waiting.append(os.pidfd_open(keeper))  # what it forked may hold the pipe open for longer than it lives
    select.select(waiting, [], [])
    for path in (state_folder() / "locks").glob(f"*{_KEEPER}.lock"):
        engine, _, cluster = path.name.removesuffix(f"{_KEEPER}.lock").partition("-")
        if keeper_lock(engine, cluster).inspect()[1].get("pid") == keeper:
            from lab.engine.select import open_engine

            with suppress(Exception):  # nobody is there to be told: whoever makes a cluster next tries again
                remove_orphan(open_engine(engine), cluster, keeper)


_KEEPER = ".keeper"


def keeper_lock(engine: str, cluster: str) -> ClusterLock:
    """The lock that a keeper holds from before a cluster is made until it is removed, or is to stay."""
    return ClusterLock(engine, f"{cluster}{_KEEPER}")


def is_orphan(engine: str, cluster: str) -> bool:
    """Whether a cluster had a keeper that died before it removed it."""
    is_kept, left = keeper_lock(engine, cluster).inspect()
    return bool(left) and not is_kept


def remove_orphans(engine: Engine, clusters: Iterable[str], announce: Announce) -> list[str]:
    """Remove those of some clusters that have lost their keeper and that nobody uses; returns all that have."""
    orphans = [name for name in clusters if is_orphan(engine.name, name)]
    for name in orphans:
        try:
            if ClusterLock(engine.name, name).holder() is None and remove_orphan(engine, name):
                announce(f"removed cluster {name}: whoever kept it is dead")
        except LabError as error:  # the new cluster is another one
            announce(f"warning: cluster {name}, left by a dead command, is still there: {error.message}")
    return orphans


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
            remove_locks(engine.name, cluster)
    except ClusterBusy:
        if keeper is None or (lock.holder() or {}).get("pid") != keeper:
            return False
        engine.remove(cluster, settle=True)
    return True


def remove_locks(engine: str, cluster: str) -> None:
    """Take away the locks of a cluster that is gone and whose name nobody will use again; by who holds its keeper's."""
    for lock in (ClusterLock(engine, cluster), nodes_lock(engine, cluster), keeper_lock(engine, cluster)):
        lock.path.unlink(missing_ok=True)
