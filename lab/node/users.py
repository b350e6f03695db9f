"""Users of the processes of a run in a node: without privileges, and a different one for each rank of the node.

In a container the agent is root, and nothing that a script starts is. On the local engine the agent and all workers run
as the user who called the lab.
"""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import suppress
from typing import NamedTuple

from .messages.agent import CHECK, FIRST_UID, Claim

GROUP = 20000
"""The group that all ranks share: they can read and change each other's files, except private ones."""
_CHECK, _STORE = -1, -2
"""Offsets of the other users from the first worker's uid."""
_A_RANGE, _RANGES = 64, 640
"""All uids are below 65,536, where a container's user namespace often ends."""
MADE_UP = range(FIRST_UID + _STORE, FIRST_UID + _A_RANGE * (_RANGES + 1))
"""The uids that the lab invents."""
UMASK = 0o002
"""Of workers: the others can change one worker's files, as if all were one user."""


def first_uid_of(cluster: str) -> int:
    """Return the uid of the first worker of a cluster that has users of its own.

    The kernel counts some resources by user of the machine, such as inotify watches. Clusters do not share these
    counts, except for one in 640 whose name has the same hash.
    """
    return FIRST_UID + _A_RANGE * (1 + zlib.crc32(cluster.encode()) % _RANGES)


class User(NamedTuple):
    """A user and their only group."""

    uid: int
    gid: int


class Users:
    """The users of one run on one node."""

    def __init__(self, claim: Claim, *, container: bool) -> None:
        self.are_separate = container and os.geteuid() == 0
        """Whether the processes of a run are other users than the agent."""
        self._first = claim.first_uid
        self._all = User(os.geteuid(), os.getegid()) if not self.are_separate else None
        if self.are_separate and claim.uid:  # never root, whatever the claim requests
            self._all = User(claim.uid, claim.gid or GROUP)

    def worker(self, local_rank: int) -> User:
        """Return the user of a worker; -1: of the scenario's check."""
        if self._all is not None:
            return self._all
        check = self._first + _CHECK
        return User(self._first + local_rank, GROUP) if local_rank >= 0 else User(check, check)

    @property
    def store(self) -> User:
        """The user of the rendezvous store, which no rank can kill."""
        store = self._first + _STORE
        return User(store, store) if self.are_separate else self.worker(0)

    def assign(self, what: str | int, local_rank: int) -> None:
        """Make a worker the owner of a file, a folder, or what a descriptor refers to."""
        if self.are_separate:
            os.chown(what, *self.worker(local_rank), follow_symlinks=isinstance(what, int))

    def variables(self, local_rank: int) -> dict[str, str]:
        """Return names for a user that the image does not have: libraries use them in names of folders."""
        if not self.are_separate:
            return {}
        name = "check" if local_rank == CHECK else f"worker{max(local_rank, 0)}"
        return {"USER": name, "LOGNAME": name}


def open_the_way_to(path: str) -> None:
    """Let every user of a container reach a path, even below the home of root, but not list the folders on the way."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        with suppress(OSError):  # the file system may be read-only
            mode = os.stat(path).st_mode
            if not mode & stat.S_IXOTH:
                os.chmod(path, stat.S_IMODE(mode) | stat.S_IXOTH)
