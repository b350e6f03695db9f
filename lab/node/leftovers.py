"""What scripts leave in a container outside of the folders that they were given, and that none of it stays.

A worker has a user of its own that owns nothing in the image. So it can leave something only in folders that anybody
may write to, which are found when the node starts, and in the kernel's System V objects. What an image lets them change
besides cannot be made good: it is looked at after each run, and a node in which it was changed is not used again.
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

from .files import remove_tree
from .messages.agent import Config
from .processes import read_words, run_as
from .users import GROUP, MADE_UP, User, open_the_way_to

_PSEUDO = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "pstore", "bpf", "configfs")
)
"""File systems in which no file can be made."""
_MOST_REPORTED = 3
_IPC_RMID = 0
_IPC_KINDS = ("shm", "sem", "msg")


def open_on_image() -> tuple[str, ...]:
    """The folders that anybody may write to on the file system of this container, which is as its image has it."""
    return tuple(path for path, _ in find_below("/", (), _may_change, files=False))


def prepare_container(config: Config) -> Leftovers:
    """Let users who may do nothing work in this container, and find out where they can leave something."""
    os.setgroups([])
    for path in (sys.executable, os.path.realpath(sys.executable), os.__file__, sys.modules["torch"].__file__ or "/"):
        open_the_way_to(path)
    journal = os.path.join(config.root, "before.json")
    leftovers = Leftovers(
        (*config.kept, config.root), foreign=config.foreign, journal=journal, known=config.open_on_image
    )
    leftovers.unclean = leftovers.remove_interrupted()
    leftovers.open_to_all()
    if os.path.isdir("/shared"):
        os.chmod("/shared", 0o777)
    return leftovers


class Leftovers:
    """The places of a container where a run can leave something, and what was there before it.

    Args:
        kept: folders whose files stay by design: the shared folder and mounted ones.
        foreign: whether single files may be open to all, too. The lab's own image has none; looking takes time.
        journal: keeps what was there before a run, until that is over; a node whose power was cut finds it there.
        known: the folders that are open to all on the first file system; None: they are looked for.
    """

    def __init__(
        self, kept: Iterable[str], *, foreign: bool, journal: str = "", known: Collection[str] | None = None
    ) -> None:
        self._kept = frozenset(kept)
        self._foreign = foreign
        self._journal = journal
        self._open = find_writable(self._kept, files=foreign, known=known)
        self._owned: dict[User, dict[str, bool]] = {}
        """What an image lets users do who are no workers of the lab's; looked for once such a user comes."""
        self._writable = self._open
        self._before: dict[str, tuple[int, ...]] = {}
        self.unclean = ""
        """What a run before the last power cut left that cannot be removed, or changed."""

    @property
    def folders(self) -> list[str]:
        """Where the present run can write; before the first one, where any can."""
        return [path for path, is_folder in self._writable.items() if is_folder]

    def open_to_all(self) -> None:
        """Let workers of one node replace one another's files in these folders, as they could if they were one user.

        The sticky bit would keep them from it, and on most machines even from writing to a file that lets them.
        """
        for folder in self.folders:
            with suppress(OSError):  # read-only
                os.chmod(folder, 0o777)

    def begin_run(self, user: User) -> None:
        """A run begins, whose workers are this user, or others whom no image knows."""
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
        """A run is over, and no process of it is left: remove what is there now and was not before it.

        `tell` is called while that goes on. Returns what cannot be removed, and what the run changed for good: a phrase
        each.
        """
        return self._remove(on_progress, slice(None))

    def remove_interrupted(self) -> str:
        """As `remove`, of a run whose end this node did not see because its power was cut; empty: there was none."""
        try:
            with open(self._journal) as file:
                self._writable, before = json.load(file)
        except (OSError, ValueError):
            return ""
        self._before = {path: tuple(identity) for path, identity in before.items()}
        return ", ".join(self._remove(lambda: None, slice(1, None)))  # a new mount may number its files anew

    def _remove(self, on_progress: Callable[[], object], compared: slice) -> list[str]:
        now = self._list()
        stays = [path for path in now.keys() - self._before.keys() if not remove_tree(path, on_progress)]
        remove_system_v()
        changed = [path for path, was in self._before.items() if now.get(path, ())[compared] != was[compared]]
        with suppress(OSError):
            os.unlink(self._journal)
        return [*stays, *(f"{path} changed" for path in sorted(changed)[:_MOST_REPORTED])]

    def _list(self) -> dict[str, tuple[int, ...]]:
        """What is there now: by path, what tells a file from another one of this name."""
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
    """Whether workers may change a file or folder: anybody may, its image has such files, or they are theirs."""
    mode, uid, gid = facts.st_mode, facts.st_uid, facts.st_gid
    owned = uid in MADE_UP or (user is not None and uid == user.uid)
    shared = gid == GROUP or (user is not None and gid == user.gid)
    return bool(mode & stat.S_IWOTH) or owned or (shared and bool(mode & stat.S_IWGRP))


def find_writable(
    kept: Collection[str], user: User | None = None, *, files: bool, known: Collection[str] | None = None
) -> dict[str, bool]:
    """Every folder (and file) that can be changed, but for those that are kept and what is below them.

    Returns whether each is a folder. What is known of the first file system is not looked for.
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
    """Those on the file system of a folder that are in it or are it."""
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
    """Remove everything in a folder, but not the folder."""
    for name in os.listdir(folder):
        remove_tree(os.path.join(folder, name))


def remove_system_v() -> None:
    """Remove all shared memory segments, semaphores and queues of this container, each as the user whose it is."""
    objects = [(owner, kind, number) for kind in _IPC_KINDS for owner, number in _system_v(kind)]
    for owner, kind, number in objects:
        control, rest = getattr(ctypes.CDLL(None), f"{kind}ctl"), (0, _IPC_RMID) if kind == "sem" else (_IPC_RMID, None)
        run_as(owner, owner, partial(control, number, *rest))


def _system_v(kind: str) -> Iterator[tuple[int, int]]:
    """Owner and number of each object of a kind."""
    names, *objects = [*read_words(f"/proc/sysvipc/{kind}")] or [[]]
    for known in (dict(zip(names, words)) for words in objects):
        yield int(known["uid"]), int(known["msqid" if kind == "msg" else f"{kind}id"])
