"""Locks of clusters, which the kernel releases when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.engine.ownership import state_folder
from lab.errors import ClusterBusy, ClusterError
from lab.plan.cluster import ClusterInfo
from lab.waiting import wait_until
from lab.words import format_duration

LEASE_S = 60.0
"""An agent that hears nothing for so long ends its run."""
_POLL_S = 0.02
_MOST_BYTES = 4096


def was_used(engine: str, cluster: str) -> bool:
    """Whether a command of this user has ever had that cluster, or with an empty name any, on that engine."""
    return any((state_folder() / "locks").glob(f"{engine}-{cluster or '*'}.lock"))


def holder_of(cluster: ClusterInfo) -> dict[str, Any] | None:
    """Who uses a cluster now: `pid`, `purpose`, `since`; None if nobody does."""
    return ClusterLock(cluster.engine, cluster.name).holder()


def nodes_lock(engine: str, cluster: str) -> ClusterLock:
    """The lock that whoever stops or starts single nodes of a cluster holds meanwhile, also beside a run."""
    return ClusterLock(engine, f"{cluster}.nodes")


def faults_file(engine: str, cluster: str) -> Path:
    """Where it stands what was broken on purpose in a cluster and has not been undone; mostly there is no such file."""
    return state_folder() / "locks" / f"{engine}-{cluster}.faults"


def forget_faults(engine: str, cluster: str) -> None:
    """Remove that file: its cluster is gone.

    Raises:
        ClusterError: it is there, and cannot be removed.
    """
    path = faults_file(engine, cluster)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if path.exists():  # a file system that is read-only refuses also what is not there
            raise ClusterError(
                f"cluster {cluster} is removed, but not {path}, which says what was broken in it: {error.strerror}",
                f"remove {path}",
            ) from error


class ClusterLock:
    """The lock of one cluster."""

    def __init__(self, engine: str, cluster: str) -> None:
        self.path = state_folder() / "locks" / f"{engine}-{cluster}.lock"
        self.cluster = cluster
        self.crashed = False
        """Whether the last holder died without letting go."""
        self.removal_cut = False
        """Whether it died while it removed the cluster; the engine may still remove what it was asked to."""

    @contextmanager
    def held(
        self, purpose: str, wait_s: float = 0.0, *, removes: bool = False, exclusive: bool = False
    ) -> Iterator[ClusterLock]:
        """Hold the lock.

        Args:
            purpose: what for, in words that follow "is busy with".
            wait_s: how long to wait for the holder.
            removes: whether the cluster is removed.
            exclusive: whether nobody may change nodes meanwhile: the cluster itself is made, changed or removed.

        Raises:
            ClusterBusy: somebody else holds it; the message says who and what for.
            ClusterError: the lock cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._cannot_write(error) from error

        def acquire() -> bool:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        holder = {"pid": os.getpid(), "purpose": purpose, "removes": removes, "exclusive": exclusive}
        try:
            if not wait_until(acquire, max(wait_s, 0.1), _POLL_S):  # somebody may just be looking who holds it
                raise self._busy(wait_s)
            left = os.pread(fd, _MOST_BYTES, 0)
            self.crashed, self.removal_cut = bool(left), _read(left).get("removes") is True
            try:
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps({**holder, "since": time.time()}).encode(), 0)
            except OSError as error:
                raise self._cannot_write(error) from error
            try:
                yield self
            finally:
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)

    def _cannot_write(self, error: OSError) -> ClusterError:
        return ClusterError(
            f"cannot write the lock of cluster {self.cluster}, {self.path}: {error.strerror}",
            "make room there, or set XDG_STATE_HOME to a folder of your own",
        )

    def _busy(self, wait_s: float) -> ClusterBusy:
        holder = self.holder() or {}
        since = holder.get("since")  # None where the holder has just let go, or somebody else wrote there
        age = f", for {format_duration(round(time.time() - since))}" if isinstance(since, float) else ""
        waited = f" (waited {format_duration(wait_s)})" if wait_s else ""
        return ClusterBusy(
            f"cluster {self.cluster} is busy with {holder.get('purpose', 'something')} "
            f"(process {holder.get('pid') or '?'}{age}){waited}",
            "wait for it with --wait 60s, or use another cluster with --name",
        )

    def holder(self) -> dict[str, Any] | None:
        """Who holds the lock now: `pid`, `purpose`, `since`; None if nobody does."""
        is_held, left = self.inspect()
        return {"pid": None, "purpose": "something", "since": None, **left} if is_held else None

    def inspect(self) -> tuple[bool, dict[str, Any]]:
        """Whether somebody holds the lock, and what the last holder has left there: nothing if it let go."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # nobody could have locked it
            return False, {}
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False, _read(os.pread(fd, _MOST_BYTES, 0))
        except BlockingIOError:
            return True, _read(os.pread(fd, _MOST_BYTES, 0))
        finally:
            os.close(fd)


def _read(data: bytes) -> dict[str, Any]:
    """What a holder wrote; nothing where it is just being written, or somebody else wrote there."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
