"""What scripts leave in a container outside of their folders, and its removal.

A worker's user owns nothing in the image. So it can leave something only in folders that anybody may write to, which
are listed when the node starts, and in the kernel's System V objects. If a run changes a file that its image leaves
open to it, the lab cannot undo that. It compares these files after each run, and does not use the node again.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial

from .files import remove_attributes, remove_tree
from .messages.agent import Config
from .processes import read_words, run_as
from .users import GROUP, MADE_UP, User, open_the_way_to

_PSEUDO = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "pstore", "bpf", "configfs")
)
"""File systems in which no process can make a file."""
_MOST_REPORTED = 3
_OF_USERS = "user."
"""Prefix of the attributes that every user who may write to a folder can set on it."""
_IPC_KINDS = ("shm", "sem", "msg")


def open_on_image() -> tuple[str, ...]:
    """Return the folders that anybody may write to on the file system of this container, as its image has them."""
    return tuple(path for path, _ in find_below("/", (), _may_change, files=False))


def prepare_container(config: Config) -> Leftovers:
    """Prepare this container for users without privileges, and find the folders where they can leave something."""
    os.setgroups([])
    for path in (sys.executable, os.path.realpath(sys.executable), os.__file__, sys.modules["torch"].__file__ or "/"):
        open_the_way_to(path)
    journal = os.path.join(config.root, "before.json")
    leftovers = Leftovers(
        (*config.kept, config.root, config.store), foreign=config.foreign, journal=journal, known=config.open_on_image
    )
    leftovers.unclean = leftovers.remove_interrupted()
    leftovers.open_to_all()
    if os.path.isdir("/shared"):
        os.chmod("/shared", 0o777)
    return leftovers


class Leftovers:
    """Files and folders that runs can change, and their state before the current run.

    Args:
        kept: folders whose files stay by design: the shared folder and mounted ones.
        foreign: whether single files may be open to all, too. The lab's own image has none, and the search takes time.
        journal: file with the state before a run, until the run is over. After a power failure the node finds it there.
        known: the open folders of the first file system; None: search for them.
    """

    def __init__(
        self, kept: Iterable[str], *, foreign: bool, journal: str = "", known: Collection[str] | None = None
    ) -> None:
        self._kept = frozenset(kept)
        self._foreign, self._journal = foreign, journal
        self._open = find_writable(self._kept, files=foreign, known=known)
        self._owned: dict[User, dict[str, bool]] = {}
        """What users from an image, which are none of the lab's, may write to; listed when such a user comes."""
        self._writable = self._open
        self._before: dict[str, tuple[int, ...]] = {}
        self.unclean = ""
        """What a run before a power failure left and cannot be removed, or changed."""

    @property
    def folders(self) -> list[str]:
        """Folders that the current run can write to; before the first run, those that any run can."""
        return [path for path, is_folder in self._writable.items() if is_folder]

    def open_to_all(self) -> None:
        """Let workers of a node replace each other's files in these folders, as if they were one user.

        With the sticky bit they could not, and on most machines they could not even write to a file that is open to
        all.
        """
        for folder in self.folders:
            with suppress(OSError):  # read-only
                os.chmod(folder, 0o777)

    def begin_run(self, user: User) -> None:
        """Save the state before a run, whose workers are this user, or invented users."""
        self._writable = self._open
        if user.uid not in MADE_UP:
            if user not in self._owned:
                self._owned[user] = find_writable(self._kept, user, files=self._foreign)
            self._writable = self._owned[user]
        self._before = self._list()
        with suppress(OSError):
            if self._journal:
                with open(f"{self._journal}.new", "w") as file:
                    json.dump((self._writable, self._before), file)
                os.rename(file.name, self._journal)

    def remove(self, on_progress: Callable[[], object]) -> list[str]:
        """Remove what a run left; it is over, and has no process any more.

        `on_progress` is called meanwhile. Returns a phrase for each thing that cannot be removed, or that the run
        changed for good.
        """
        return self._remove(on_progress, slice(None))

    def remove_interrupted(self) -> str:
        """Remove what a run left that a power failure ended; return the phrases of `remove`, or empty text."""
        try:
            with open(self._journal) as file:
                self._writable, before = json.load(file)
        except (OSError, ValueError):
            return ""
        self._before = {path: tuple(identity) for path, identity in before.items()}
        return ", ".join(self._remove(lambda: None, slice(1, None)))  # a new mount may renumber its files

    def _remove(self, on_progress: Callable[[], object], compared: slice) -> list[str]:
        now = self._list()
        stays = [path for path in now.keys() - self._before.keys() if not remove_tree(path, on_progress)]
        remove_system_v()
        for folder in self.folders:
            remove_attributes(folder, _OF_USERS)
        changed = [path for path, was in self._before.items() if now.get(path, ())[compared] != was[compared]]
        with suppress(OSError):
            os.unlink(self._journal)
        return [*stays, *(f"{path} changed" for path in sorted(changed)[:_MOST_REPORTED])]

    def _list(self) -> dict[str, tuple[int, ...]]:
        """Return by path an identity that distinguishes a file from a later one with the same name."""
        entries: dict[str, tuple[int, ...]] = {}
        for candidate, is_folder in self._writable.items():
            with suppress(OSError):  # gone meanwhile
                if not is_folder:
                    facts = os.lstat(candidate)
                    entries[candidate] = (*_identify(facts), facts.st_ctime_ns)
                    continue
                for name in os.listdir(candidate):
                    path = os.path.join(candidate, name)
                    with suppress(OSError):
                        entries[path] = _identify(os.lstat(path))
        return entries


def _identify(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_ino, facts.st_uid, facts.st_gid, facts.st_mode


def _may_change(facts: os.stat_result, user: User | None = None) -> bool:
    """Return whether workers may change a file or folder: it is open to all, or belongs to them or their group."""
    mode, uid, gid = facts.st_mode, facts.st_uid, facts.st_gid
    owned = uid in MADE_UP or (user is not None and uid == user.uid)
    shared = gid == GROUP or (user is not None and gid == user.gid)
    return bool(mode & stat.S_IWOTH) or owned or (shared and bool(mode & stat.S_IWGRP))


def find_writable(
    kept: Collection[str], user: User | None = None, *, files: bool, known: Collection[str] | None = None
) -> dict[str, bool]:
    """Return every folder (and file) that can be changed, except for kept ones and their contents; true for folders.

    Folders in `known` replace a search of the first file system.
    """

    def is_kept(path: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for folder in kept)

    writable = {path: True for path in known or () if not is_kept(path)}
    for top in (*(["/"] if known is None else []), *sorted(_mount_points())):
        if not is_kept(top):
            writable.update(find_below(top, kept, partial(_may_change, user=user), files=files))
    return writable


def _mount_points() -> set[str]:
    mounts = [words[1:3] for words in read_words("/proc/self/mounts")]
    paths = {path for path, kind in mounts if kind not in _PSEUDO and not path.startswith(("/proc/", "/sys/"))}
    return {path for path in paths - {"/"} if os.path.isdir(path)}


def find_below(
    top: str, left_out: Collection[str], may_change: Callable[[os.stat_result], bool], *, files: bool
) -> Iterator[tuple[str, bool]]:
    """Yield the changeable entries on a folder's file system, the folder included."""
    try:
        facts = os.lstat(top)
    except OSError:
        return
    device, waiting = facts.st_dev, [top]
    if may_change(facts):
        yield top, True
    for folder in waiting:
        with suppress(OSError), os.scandir(folder) as entries:  # it may be gone meanwhile
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and not (files and entry.is_file(follow_symlinks=False)):
                    continue
                facts = entry.stat(follow_symlinks=False)
                if is_folder and (facts.st_dev != device or entry.path in left_out):
                    continue
                if is_folder:
                    waiting.append(entry.path)
                if may_change(facts):
                    yield entry.path, is_folder


def empty_folder(folder: str) -> None:
    """Remove everything in a folder and its attributes, but not the folder."""
    remove_attributes(folder, _OF_USERS)
    for name in os.listdir(folder):
        remove_tree(os.path.join(folder, name))


def remove_system_v() -> None:
    """Remove all shared memory segments, semaphores, and queues of this container, each as its owner.

    There may be tens of thousands, so one fork removes all of them.
    """
    objects = [(owner, kind, number) for kind in _IPC_KINDS for owner, number in _system_v(kind)]

    def remove() -> None:
        for owner, kind, number in objects:
            os.seteuid(owner)
            getattr(ctypes.CDLL(None), f"{kind}ctl")(number, 0, 0)  # IPC_RMID, or 0 and IPC_RMID
            os.seteuid(0)

    if objects:
        run_as(0, 0, remove)


def _system_v(kind: str) -> Iterator[tuple[int, int]]:
    """Yield owner and number of each object of a kind."""
    names, *objects = [*read_words(f"/proc/sysvipc/{kind}")] or [[]]
    for known in (dict(zip(names, words)) for words in objects):
        yield int(known["uid"]), int(known["msqid" if kind == "msg" else f"{kind}id"])
