"""The folders of scripts in a node: kept from one run to the next, so that a run writes only what changed.

A script may do anything with its folder. After the run, the agent compares every entry with what it wrote. A file is
unchanged if its inode number and its time of status change are, which only the kernel sets. The agent removes
everything else, or writes it again from the contents that the node has.

The file system has to update that time for each write, also through a mapping. File systems in memory do not: there,
the agent writes the folder again for each run.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from .contents import EXECUTABLE, LIMIT_BYTES, LINK, ContentStore, Entry
from .files import NEW_FLAGS, READ_FLAGS, closing_descriptor, remove_attributes, remove_tree
from .processes import read_words
from .users import User

_MOST_KEPT = 4
_MOST_EXTRA = 100_000
"""With more new entries than this, the whole folder is removed."""
CLOCK_OF_FILES = 5
"""CLOCK_REALTIME_COARSE: what file systems take times from."""
_TICK_S, _LONGEST_WAIT_NS = 0.001, 10**9
_IN_MEMORY = ("tmpfs", "ramfs")
_GET_FLAGS, _SET_FLAGS, _OF_OWNER = 0x80086601, 0x40086602, 0x208304CF
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, and flags that new files of a folder inherit, such as FS_SYNC_FL (linux/fs.h)."""


class Difference(NamedTuple):
    """An entry that a run made or changed."""

    path: str
    """Below the folder."""
    facts: os.stat_result


def _identify(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_ino, facts.st_ctime_ns


class KeptFolder:
    """The folder of a script in a node.

    Args:
        key: identifies the folder on the machine that sends it.
        top: where it is.
        store: has the contents of its files.
        owner: the owner of everything in it; None: the user of this process.
    """

    def __init__(self, key: str, top: str, store: ContentStore, owner: User | None) -> None:
        self.key, self.top, self.owner = key, top, owner
        self.token = ""
        """Identifies its state on the machine that sends it; empty: unknown."""
        self.entries: Mapping[str, Entry] = {}
        self._store = store
        self._identities: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        """By folder and name of each entry that was written: inode number and time of status change in nanoseconds."""
        self._folders: dict[str, tuple[int, int]] = {"": (0, 0)}
        """The same by path of each folder, as of its last listing: without another change, nothing came or went."""
        self._differences: list[Difference] | None = None
        self._lost: set[str] = set()
        """Written paths that are missing or changed."""
        self._is_lost = False
        """Whether it cannot be restored."""
        self._written = 0
        """Time of the last change that is known here, by the clock of files, in nanoseconds."""

    # -- before a run

    def lacking(self, entries: Mapping[str, Entry]) -> list[str]:
        """Return the digests of those contents that the store does not have."""
        known = self.entries
        return self._store.lacking(entry.digest for path, entry in entries.items() if known.get(path) != entry)

    def become(self, entries: Mapping[str, Entry]) -> None:
        """Write what changed; the store has all contents.

        Raises:
            OSError: something cannot be written.
        """
        before, self.token = self.entries, ""
        changed = [path for path, entry in entries.items() if before.get(path) != entry]
        gone = [path for path in before if path not in entries]
        for path in (*gone, *changed):
            folder, name = os.path.split(path)
            if self._identities[folder].pop(name, None):
                os.unlink(f"{self.top}/{path}")
        for path in gone:
            self._remove_empty(os.path.dirname(path))
        self.entries = entries
        self._write(changed)

    def _write(self, paths: Collection[str]) -> None:
        mask = os.umask(0o002 if self.owner else 0o022)
        try:
            for path in paths:
                self._make_folders(os.path.dirname(path))
                self._write_entry(path, self.entries[path])
        finally:
            os.umask(mask)
        if paths:
            self._written = time.clock_gettime_ns(CLOCK_OF_FILES)

    def _write_entry(self, path: str, entry: Entry) -> None:
        target = f"{self.top}/{path}"
        if entry.kind == LINK:
            os.symlink(self._store.read(entry.digest), os.fsencode(target))
            if self.owner:
                os.lchown(target, *self.owner)
            facts = os.lstat(target)
        else:
            mode = 0o777 if entry.kind == EXECUTABLE else 0o666
            with closing_descriptor(os.open(target, NEW_FLAGS, mode)) as file:
                self._store.copy(entry.digest, file)
                if self.owner:
                    os.fchown(file, *self.owner)
                os.utime(file, (entry.mtime, entry.mtime))
                facts = os.fstat(file)
        folder, name = os.path.split(path)
        self._identities[folder][name] = _identify(facts)

    def _make_folders(self, path: str) -> None:
        if path in self._folders:
            return
        self._make_folders(os.path.dirname(path))
        os.mkdir(f"{self.top}/{path}")
        self._own_folder(path)
        self._folders[path] = (0, 0)

    def _own_folder(self, path: str) -> None:
        folder = f"{self.top}/{path}"
        if self.owner:
            os.chown(folder, *self.owner)
        os.chmod(folder, self._folder_mode)  # if a script set special bits, chown has removed them

    @property
    def _folder_mode(self) -> int:
        return 0o775 if self.owner else 0o755

    def _remove_empty(self, path: str) -> None:
        """Remove folders that are empty now, upwards."""
        while path:
            try:
                os.rmdir(f"{self.top}/{path}")
            except OSError:  # something is in it, or it is gone already
                if path in self._folders and os.path.isdir(f"{self.top}/{path}"):
                    return
            self._folders.pop(path, None)
            path = os.path.dirname(path)

    def await_tick(self) -> None:
        """Wait until a change would have another time than the last one that is known; not long: clocks may jump."""
        while -_LONGEST_WAIT_NS < time.clock_gettime_ns(CLOCK_OF_FILES) - self._written <= 0:
            time.sleep(_TICK_S)

    # -- after a run, which has no process any more

    def differences(self) -> list[Difference]:
        """Return every entry that the run made or changed, without those below new folders."""
        if self._differences is None:
            self._differences = []
            try:
                self._compare(self._differences)
            except OSError:
                self._is_lost = True
        return self._differences

    def _compare(self, differences: list[Difference]) -> None:
        top = os.lstat(self.top)
        if not stat.S_ISDIR(top.st_mode):
            raise NotADirectoryError
        known, waiting, visited = self._folders, [""], {"": _identify(top)}
        inner: dict[str, list[str]] = defaultdict(list)
        for path in filter(None, known):
            inner[os.path.dirname(path)].append(os.path.basename(path))
        for folder in waiting:
            prefix = f"{folder}/" if folder else ""
            identities, unchanged = self._identities[folder], list[str]()
            is_same = known.get(folder) == visited[folder]  # if so, listing it would take longer
            with closing_descriptor(os.open(f"{self.top}/{folder}", READ_FLAGS)) as opened:
                for name in (*identities, *inner[folder]) if is_same else (one.name for one in os.scandir(opened)):
                    facts = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    identity = _identify(facts)
                    if identities.get(name) == identity:
                        unchanged.append(name)
                        continue
                    path = prefix + name
                    if path in known and stat.S_ISDIR(facts.st_mode):
                        if known[path] != identity:
                            self._restore_folder(path, facts)
                        waiting.append(path)
                        visited[path] = identity
                        continue
                    differences.append(Difference(path, facts))
                    if len(differences) > _MOST_EXTRA:
                        self._is_lost = True
                        return
            if len(unchanged) != len(identities):
                self._lost |= {prefix + name for name in identities.keys() - set(unchanged)}
        for folder in known.keys() - visited.keys():
            self._lost |= {f"{folder}/{name}" for name in self._identities[folder]}
        self._folders, self._written = visited, max(self._written, *(changed for _, changed in visited.values()))

    def _restore_folder(self, path: str, facts: os.stat_result) -> None:
        """Restore the owner and the permissions of a folder."""
        has_other_owner = self.owner is not None and (facts.st_uid, facts.st_gid) != self.owner
        if has_other_owner or stat.S_IMODE(facts.st_mode) != self._folder_mode:
            self._own_folder(path)
        remove_attributes(f"{self.top}/{path}")
        with suppress(OSError), closing_descriptor(os.open(f"{self.top}/{path}", READ_FLAGS)) as folder:
            flags = int.from_bytes(fcntl.ioctl(folder, _GET_FLAGS, bytes(8)), sys.byteorder)
            if flags & _OF_OWNER:
                fcntl.ioctl(folder, _SET_FLAGS, (flags & ~_OF_OWNER).to_bytes(8, sys.byteorder))

    def restore(self) -> bool:
        """Make the folder as it was before the run; return whether it is."""
        differences = self.differences()
        if self._is_lost:
            return False
        try:
            if not all(remove_tree(f"{self.top}/{one.path}") for one in differences):
                return False
            for path in self._lost:
                folder, name = os.path.split(path)
                del self._identities[folder][name]
            if self._store.lacking(self.entries[path].digest for path in self._lost):
                return False
            self._restore_folder("", os.lstat(self.top))
            self._write(self._lost)
        except OSError:
            return False
        self._differences, self._lost = None, set()
        return True


class KeptFolders:
    """The folders of the last scripts of a node, which no script can reach while it does not run there.

    Args:
        folder: where they are between runs.
        store: has the contents of their files.
    """

    def __init__(self, folder: str, store: ContentStore) -> None:
        self.store, self._folder = store, folder
        os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        self._can_keep = not is_in_memory(folder)
        self._kept: dict[str, KeptFolder] = {}
        """By key, the last used one last."""

    def move_to(self, key: str, top: str, owner: User | None) -> KeptFolder:
        """Move the folder with this key to a path, where an empty folder is, or begin a new one there."""
        if (kept := self._kept.pop(key, None)) is not None and kept.owner == owner:
            os.rename(kept.top, top)
            kept.top = top
            return kept
        if kept is not None:
            remove_tree(kept.top)
        return KeptFolder(key, top, self.store, owner)

    def put_back(self, folder: KeptFolder) -> None:
        """Keep a folder after a run if it can be restored; otherwise leave it where it is."""
        if not (self._can_keep and folder.token and folder.restore()):
            return
        away = f"{self._folder}/{os.urandom(8).hex()}"
        os.rename(folder.top, away)
        folder.top, self._kept[folder.key] = away, folder

    def shrink(self) -> None:
        """Remove the folders and contents beyond the limits, which can take seconds."""
        while len(self._kept) > _MOST_KEPT:
            remove_tree(self._kept.pop(next(iter(self._kept))).top)
        if self.store.size_bytes() > LIMIT_BYTES:
            self.store.shrink({entry.digest for kept in self._kept.values() for entry in kept.entries.values()})


def is_in_memory(folder: str) -> bool:
    """Return whether a folder is on a file system in memory."""
    return _file_system_of(folder) in _IN_MEMORY


def _file_system_of(folder: str) -> str:
    """Return the kind of the file system that a folder is on; empty if unknown."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    mounts = (words for words in read_words("/proc/self/mountinfo") if words[2:3] == [name] and "-" in words[:-1])
    return next((words[words.index("-") + 1] for words in mounts), "")
