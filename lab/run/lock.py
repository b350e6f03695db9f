"""Lock a cluster; the kernel releases the lock when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from lab.engine.ownership import state_folder
from lab.errors import ClusterBusy, ClusterError
from lab.node.files import closing_descriptor
from lab.plan.cluster import ClusterInfo
from lab.polling import poll_until
from lab.words import format_duration

LEASE_S = 60.0
"""An agent that receives no message for this long ends its run."""
_POLL_S = 0.02
_MOST_BYTES = 4096


def was_used(engine: str, cluster: str) -> bool:
    """Return whether a command of this user ever had this cluster on this engine; an empty name means any cluster."""
    return any((state_folder() / "locks").glob(f"{engine}-{cluster or '*'}.lock"))


def read_holder(cluster: ClusterInfo) -> dict[str, Any] | None:
    """Return who uses a cluster now (`pid`, `purpose`, `since`), or None if nobody does."""
    return ClusterLock(cluster.engine, cluster.name).holder()


def read_killed(cluster: ClusterInfo) -> str:
    """Return what the last user of a cluster did, if it was killed; empty if it ended or still uses the cluster."""
    is_held, left = ClusterLock(cluster.engine, cluster.name).inspect()
    return "" if is_held else str(left.get("purpose", ""))


def try_lock(file: int | IO[bytes]) -> bool:
    """Lock a file for this process; return False if another process has locked it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def nodes_lock(engine: str, cluster: str) -> ClusterLock:
    """Return the lock to hold while single nodes of a cluster stop or start, also during a run."""
    return ClusterLock(engine, f"{cluster}.nodes")


def faults_file(engine: str, cluster: str) -> Path:
    """Return the path of the journal of injected faults that are still in force; usually there is no such file."""
    return state_folder() / "locks" / f"{engine}-{cluster}.faults"


def forget_faults(engine: str, cluster: str) -> None:
    """Remove the journal of faults of a cluster that no longer exists.

    Raises:
        ClusterError: the file exists and cannot be removed.
    """
    path = faults_file(engine, cluster)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if path.exists():  # a read-only file system also refuses to remove missing files
            why = f"removed cluster {cluster}, but not the list of its faults, {path}: {error.strerror}"
            raise ClusterError(why, f"remove {path}") from error


class ClusterLock:
    """The lock of one cluster."""

    def __init__(self, engine: str, cluster: str) -> None:
        self.path = state_folder() / "locks" / f"{engine}-{cluster}.lock"
        self.cluster = cluster
        self.crashed = False
        """Whether the last holder died without releasing the lock."""
        self.removal_cut = False
        """Whether it died while it removed the cluster; the engine may still process its requests."""

    @contextmanager
    def held(
        self, purpose: str, wait_s: float = 0.0, *, removes: bool = False, exclusive: bool = False
    ) -> Iterator[ClusterLock]:
        """Hold the lock.

        Args:
            purpose: why it is held, in words that follow "is busy with".
            wait_s: seconds to wait for the current holder.
            removes: whether the cluster is removed.
            exclusive: whether nobody may change nodes meanwhile, because the cluster is created, changed, or removed.

        Raises:
            ClusterBusy: another process holds it; the message says which, and why.
            ClusterError: the lock cannot be written.
        """
        what = f"cannot write the lock of cluster {self.cluster}, {self.path}"
        hint = "free space there, or set XDG_STATE_HOME to a folder of your own"
        with ClusterError.on_os_error(what, hint):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        holder = {"pid": os.getpid(), "purpose": purpose, "removes": removes, "exclusive": exclusive}
        with closing_descriptor(fd):
            if not poll_until(lambda: try_lock(fd), max(wait_s, 0.1), _POLL_S):  # a reader may lock it for a moment
                raise self._busy(wait_s)
            left = os.pread(fd, _MOST_BYTES, 0)
            self.crashed, self.removal_cut = bool(left), _read(left).get("removes") is True
            with ClusterError.on_os_error(what, hint):
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps({**holder, "since": time.time()}).encode(), 0)
            try:
                yield self
            finally:
                os.ftruncate(fd, 0)

    def _busy(self, wait_s: float) -> ClusterBusy:
        holder = self.holder() or {}
        since = holder.get("since")  # None if the holder has just released it, or the file is damaged
        age = f", for {format_duration(round(time.time() - since))}" if isinstance(since, float) else ""
        return ClusterBusy(
            f"cluster {self.cluster} is busy with {holder.get('purpose', 'something')} "
            f"(process {holder.get('pid') or '?'}{age}){f' (waited {format_duration(wait_s)})' if wait_s else ''}",
            "wait for it with --wait 60s, or use another cluster with --name",
        )

    def holder(self) -> dict[str, Any] | None:
        """Return who holds the lock now (`pid`, `purpose`, `since`), or None if nobody does."""
        is_held, left = self.inspect()
        return {"pid": None, "purpose": "something", "since": None, **left} if is_held else None

    def inspect(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the lock is held, and the last holder's data, which is empty if the holder released it."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # without the file no process holds the lock
            return False, {}
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False, _read(os.pread(fd, _MOST_BYTES, 0))
        except BlockingIOError:
            return True, _read(os.pread(fd, _MOST_BYTES, 0))
        finally:
            os.close(fd)


def _read(data: bytes) -> dict[str, Any]:
    """Parse the data of a holder; empty if it is incomplete or damaged."""
    try:
        holder = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}
