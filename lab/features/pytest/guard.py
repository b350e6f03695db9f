"""Removes clusters whose keeper is gone: a process of its own that outlives whoever keeps them, however that ends.

The keeper tells it over standard input which clusters there are: `+ENGINE NAME` when one is about to be made, `-ENGINE
NAME` when it is removed, or is to stay. When the keeper is gone, what is left of these is removed.
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

from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterBusy, LabError
from lab.run.lock import ClusterLock, nodes_lock

_END_S = 5.0
"""At an orderly end it has nothing left to do; what it has left it does alone."""


class Guard:
    """The guard of the clusters that this process keeps; started for the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._guarded: list[str] = []

    def add(self, engine: str, cluster: str) -> None:
        """Guard a cluster, before it is made."""
        self._guarded.append(f"{engine} {cluster}")
        unknown = self._guarded[-1:]
        if self._process is None or self._process.poll() is not None:  # somebody ended it
            self._process, unknown = _start(), self._guarded
        for one in unknown:
            self._tell("+", one)

    def drop(self, engine: str, cluster: str) -> None:
        """Leave a cluster alone, which is gone or is to stay."""
        self._guarded.remove(f"{engine} {cluster}")
        self._tell("-", f"{engine} {cluster}")

    def end(self) -> None:
        """Let the guard go; what it still guards, it removes."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        self._process = None

    def _tell(self, sign: str, what: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was ended: whoever makes a cluster next removes what the dead leave
                self._process.stdin.write(f"{sign}{what}\n".encode())


def _start() -> subprocess.Popen[bytes]:
    """Start the guard in a session of its own, which no Ctrl-C reaches, and with nothing of ours that it could hold."""
    own = str(Path(__file__).parents[3])  # before a folder `lab` of somebody else
    path = [own, *map(os.path.abspath, sys.path)]
    program = f"import sys; sys.path[:] = {path!r}; from lab.features.pytest.guard import main; main({os.getpid()})"
    return subprocess.Popen(
        [sys.executable, "-S", "-c", program],  # its path is ours: no need to look for it
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def main(keeper: int) -> None:
    """Wait for the end of the keeper, then remove the clusters that it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for engine, _, cluster in (one.partition(" ") for one in _await_end(keeper)):
        from lab.engine.select import open_engine

        with suppress(Exception):  # nobody is there to be told: whoever makes a cluster next tries again
            remove_orphan(open_engine(engine), cluster, keeper)


def _await_end(keeper: int) -> list[str]:
    """The clusters, each after its engine, that are there when the keeper is gone, or lets the guard go."""
    waiting = [0]
    with suppress(AttributeError, OSError):  # no such call here, or it is dead already
        waiting.append(os.pidfd_open(keeper))  # what it forked may hold the pipe open for longer than it lives
    guarded, rest = dict[str, None](), b""
    while True:
        ready = select.select(waiting, [], [])[0]
        data = os.read(0, 65536) if 0 in ready else b""
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                guarded[line[1:].decode()] = None
            else:
                guarded.pop(line[1:].decode(), None)
        if not data:
            return list(guarded)


def keeper_lock(engine: str, cluster: str) -> ClusterLock:
    """The lock that a keeper holds from before a cluster is made until it is removed, or is to stay."""
    return ClusterLock(engine, f"{cluster}.keeper")


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
