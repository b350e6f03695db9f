"""What scripts leave in a container outside of the folders that they were given, and that none of it stays.

A worker has a user of its own that owns nothing in the image. So it can leave something only in folders that anybody
may write to, which are found when the node starts, and in the kernel's System V objects.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from .remove import remove_tree

_PSEUDO = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "pstore", "bpf", "configfs")
)
"""File systems in which no file can be made."""
_IPC_RMID = 0
_IPC_KINDS = ("shm", "sem", "msg")


class Strays:
    """The places of a container where a run can leave something, and what was there before it.

    Args:
        kept: folders whose files stay by design: the shared folder and mounted ones.
    """

    def __init__(self, kept: Iterable[str]) -> None:
        self.folders = writable_folders(kept)
        self._before: set[str] = set()

    def open_to_all(self) -> None:
        """Let workers of one node replace one another's files in these folders, as they could if they were one user.

        The sticky bit would keep them from it, and on most machines even from writing to a file that lets them.
        """
        for folder in self.folders:
            with suppress(OSError):  # read-only
                os.chmod(folder, 0o777)

    def remember(self) -> None:
        """A run begins."""
        self._before = self._listing()

    def remove(self, tell: Callable[[], object]) -> list[str]:
        """A run is over, and no process of it is left: remove what is there now and was not before it.

        `tell` is called while that goes on. Returns what cannot be removed.
        """
        stays = [path for path in self._listing() - self._before if not remove_tree(path, tell)]
        remove_system_v()
        return stays

    def _listing(self) -> set[str]:
        found: set[str] = set()
        for folder in self.folders:
            with suppress(OSError):
                found.update(os.path.join(folder, name) for name in os.listdir(folder))
        return found


def writable_folders(kept: Iterable[str]) -> list[str]:
    """Every folder of this machine that anybody may write to, but for those that are kept and what is below them."""
    left_out = set(kept)
    found: list[str] = []
    for top in ("/", *sorted(_mount_points() - left_out)):
        if not any(top == folder or top.startswith(f"{folder}/") for folder in left_out):
            found += writable_below(top, left_out)
    return found


def _mount_points() -> set[str]:
    points = set()
    with open("/proc/self/mounts") as file:
        for line in file:
            _, path, kind, *_ = line.split()
            if kind not in _PSEUDO and not path.startswith(("/proc/", "/sys/")) and os.path.isdir(path):
                points.add(path)
    return points - {"/"}


def writable_below(top: str, left_out: set[str]) -> Iterator[str]:
    """Those of them on the file system of a folder that are in it or are it."""
    try:
        device = os.lstat(top).st_dev
    except OSError:
        return
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            facts = os.lstat(folder)
            if facts.st_dev != device or folder in left_out:
                continue
            if facts.st_mode & stat.S_IWOTH:
                yield folder
            with os.scandir(folder) as entries:
                waiting.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:  # gone meanwhile
            continue


def empty(folder: str) -> None:
    """Remove everything in a folder, but not the folder."""
    for name in os.listdir(folder):
        remove_tree(os.path.join(folder, name))


def remove_system_v() -> None:
    """Remove all shared memory segments, semaphores and queues of this container, each as the user whose it is."""
    found: dict[int, list[tuple[str, int]]] = {}
    for kind in _IPC_KINDS:
        for owner, number in _system_v(kind):
            found.setdefault(owner, []).append((kind, number))
    for owner, objects in found.items():
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(owner, owner, owner)
                libc = ctypes.CDLL(None)
                for kind, number in objects:
                    arguments = (number, 0, _IPC_RMID) if kind == "sem" else (number, _IPC_RMID, None)
                    getattr(libc, f"{kind}ctl")(*arguments)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)


def _system_v(kind: str) -> Iterator[tuple[int, int]]:
    """Owner and number of each object of a kind."""
    try:
        with open(f"/proc/sysvipc/{kind}") as file:
            names = file.readline().split()
            owner, number = names.index("uid"), names.index(f"{kind}id" if kind != "msg" else "msqid")
            for line in file:
                words = line.split()
                yield int(words[owner]), int(words[number])
    except (OSError, ValueError):
        return
