"""How much a run has written to the disk of its node, and whose files it is in."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from .processes import become
from .users import User

_PAUSE_S = 0.25
_PART_OF_THE_TIME = 20
"""Looking through folders takes no more than one part of so many."""
_MOST_FILES = 1_000_000
"""So many are looked at; who makes more has made few large ones."""
_NEARLY_FULL_BYTES = 1 << 30
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE: what file systems take times from


class Disk:
    """What was written since a moment, the one at which this was made.

    As long as the file systems have not lost more than the limit nothing is looked at but their free space.

    Args:
        limit_bytes: what all users together may write.
        folders: where the run can write.
        users: whose files count.
        alone: whether all processes of these users are of the run.
    """

    def __init__(self, limit_bytes: int, folders: Iterable[str], users: Iterable[User], *, alone: bool) -> None:
        self.limit_bytes = limit_bytes
        self._folders = tuple(folder for folder in folders if not folder.startswith("/dev/"))  # those are in memory
        self._users = frozenset(users)
        self._alone = alone
        self._began = time.clock_gettime(_CLOCK_OF_FILES)
        self._free = {folder: _free_bytes(folder) for folder in self._folders}
        self._next = 0.0

    def excess(self) -> Mapping[int, int] | None:
        """What each user wrote, where that is more than the limit; empty where it cannot be told who; None: no excess.

        Nobody can be told where files have no name any more and their processes hide them; then there is an excess only
        if the disk is nearly full.
        """
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + _PAUSE_S
        free = {folder: _free_bytes(folder) for folder in self._folders}
        if all(self._free[folder] - left <= self.limit_bytes for folder, left in free.items()):
            return None
        written = self._written()
        if self._alone and sum(written.values()) <= self.limit_bytes:
            devices = {os.lstat(folder).st_dev for folder in self._folders}
            for user in self._users:
                written[user.uid] = written.get(user.uid, 0) + _nameless_bytes(user, devices)
        took = time.monotonic() - now
        self._next = now + max(_PAUSE_S, took * _PART_OF_THE_TIME)
        if sum(written.values()) > self.limit_bytes:
            return written
        return {} if min(free.values()) < _NEARLY_FULL_BYTES else None

    def forgive(self, uid: int) -> None:
        """From now on leave out what a user wrote: its processes have been ended."""
        self._users = frozenset(user for user in self._users if user.uid != uid)

    def _written(self) -> dict[int, int]:
        written: dict[int, int] = {}
        uids = {user.uid for user in self._users}
        seen: set[tuple[int, int]] = set()
        for number, facts in enumerate(_everything_in(self._folders)):
            if number > _MOST_FILES:
                break
            if facts.st_uid not in uids or facts.st_ctime < self._began or not stat.S_ISREG(facts.st_mode):
                continue
            if facts.st_nlink > 1:
                if (facts.st_dev, facts.st_ino) in seen:
                    continue
                seen.add((facts.st_dev, facts.st_ino))
            written[facts.st_uid] = written.get(facts.st_uid, 0) + facts.st_blocks * 512
        return written


def _free_bytes(folder: str) -> int:
    facts = os.statvfs(folder)
    return facts.f_bfree * facts.f_frsize


def _everything_in(folders: Iterable[str]) -> Iterator[os.stat_result]:
    """What is in folders and below them, each folder once; links are not followed."""
    waiting, seen = list(folders), set()
    while waiting:
        folder = waiting.pop()
        try:
            facts = os.lstat(folder)
            if (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    facts = entry.stat(follow_symlinks=False)
                    yield facts
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
        except OSError:  # gone meanwhile, or too deep for a path
            continue


def _nameless_bytes(user: User, devices: Collection[int]) -> int:
    """What the processes of a user have open that has no name any more; asked as that user, who alone may look."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:  # they leave no room for another process
        pid = -1
    if pid == 0:
        try:
            become(*user)
            os.write(writer, struct.pack("Q", _nameless_open(user.uid, devices)))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        data = answer.read()
    if pid > 0:
        os.waitpid(pid, 0)
    return struct.unpack("Q", data)[0] if len(data) == 8 else 0


def _nameless_open(uid: int, devices: Collection[int]) -> int:
    sizes: dict[tuple[int, int], int] = {}
    for entry in os.listdir("/proc"):
        try:
            if not entry.isdigit() or os.stat(f"/proc/{entry}").st_uid != uid:
                continue
            with os.scandir(f"/proc/{entry}/fd") as descriptors:
                for descriptor in descriptors:
                    facts = os.stat(descriptor.path)
                    if stat.S_ISREG(facts.st_mode) and not facts.st_nlink and facts.st_dev in devices:
                        sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        except OSError:  # it ended, or nobody may look into it
            continue
    return sum(sizes.values())


class Places:
    """File systems with a limit of their own in which a run can write, and which of them it has filled.

    Args:
        folders: where the run can write.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = {os.stat(folder).st_dev: folder for folder in folders}
        self._next = 0.0

    def filled(self, *, now: bool = False) -> Iterator[tuple[str, int]]:
        """Each that has no room any more, told once: a folder in it and its size; four times a second, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_S
        for device, folder in list(self._folders.items()):
            facts = os.statvfs(folder)
            if facts.f_blocks and (not facts.f_bavail or (facts.f_files and not facts.f_favail)):
                del self._folders[device]
                yield folder, facts.f_blocks * facts.f_frsize
