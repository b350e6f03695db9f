"""The folders of a run in its node: one for workers, and one that only the agent may change.

The agent writes nothing where a script could have put a link in the way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .contents import ContentStore, Entry, Receiver, read_entries
from .files import NEW_FLAGS, remove_tree
from .kept_folders import CLOCK_OF_FILES, KeptFolder, KeptFolders
from .messages.agent import Config, Content, Folder, Lacks
from .users import Users


def clear_folders(root: str) -> None:
    """Make the folder of an agent, and remove what an interrupted run left there."""
    os.makedirs(root, exist_ok=True)
    for folder in _folders(root):
        remove_tree(folder)


def _folders(root: str) -> tuple[str, str]:
    """Return the folder for workers, and the one for the agent alone."""
    return os.path.join(root, "run"), os.path.join(root, "own")


def open_kept_folders(config: Config) -> KeptFolders:
    """Return the folders that a new agent keeps, of which there are none yet."""
    folder = os.path.join(config.root, "kept")
    remove_tree(folder)
    return KeptFolders(folder, ContentStore(config.store or os.path.join(config.root, "contents")))


class RunFolders:
    """The folders of a run, made empty.

    Args:
        run: name of the run.
        root: the folder of the agent.
        users: of the run.
        kept: the folders of earlier scripts.
    """

    def __init__(self, run: str, root: str, users: Users, kept: KeptFolders) -> None:
        self._run, self._users, self._kept = run, users, kept
        self.home, self._own = _folders(root)
        """Where workers may write."""
        self.folder = os.path.join(self.home, "work")
        """The scenario's folder for the workers."""
        self._owner = users.worker(0) if users.are_separate else None
        self.in_container = users.are_separate
        self.shipped = KeptFolder("", self.folder, kept.store, self._owner)
        """What is in it."""
        self._asked: Folder | None = None
        """What it has to become."""
        self._complete: dict[str, Entry] | None = None
        """What it will have, once the node has all contents."""
        self.began_ns = time.clock_gettime_ns(CLOCK_OF_FILES)
        """Unix time from which on files are those of the run, in nanoseconds, by the clock of files."""
        self._of_check: Folder | None = None
        """The check's own folder, if it has one."""
        for folder in (self.home, self._own):
            if not remove_tree(folder):
                raise OSError(f"{folder} holds something that cannot be removed")
        os.makedirs(self._own)
        for folder in (self.home, self.folder, self.make_home_path(self.folder)):
            os.mkdir(folder)
            if users.are_separate:
                users.assign(folder, 0)
                os.chmod(folder, 0o775)
        self._receivers = {False: Receiver(kept.store)}

    @property
    def are_complete(self) -> bool:
        """Whether the script's folder is as it has to be."""
        return self._asked is None

    def describe(self, folder: Folder) -> Lacks | None:
        """Return what is missing for the script's folder. The check's folder is made when it begins."""
        if folder.for_check:
            self._of_check = folder
            return None
        if folder.key != self.shipped.key:
            self.shipped = self._kept.move_to(folder.key, self.folder, self._owner)
        self._asked, self._complete = folder, None
        return self._find_lacking(folder)

    def receive(self, content: Content) -> Lacks | None:
        """Receive contents.

        Returns:
            After the last part, what is missing for the script's folder, or nothing; None: it was not waited for.
        """
        if content.for_check not in self._receivers:
            self._receivers[True] = Receiver(ContentStore(self._store_of_check))
        self._receivers[content.for_check].feed(content.data, last=content.last)
        if self._asked is None or not content.last:
            return None
        return self._find_lacking(self._asked) or Lacks(self._run, self._kept.store.identity)

    def _find_lacking(self, asked: Folder) -> Lacks | None:
        shipped, store = self.shipped, self._kept.store
        entries = read_entries(asked.entries)
        if asked.base:
            if not shipped.token or shipped.token not in (asked.base, asked.token):
                return Lacks(self._run, store.identity, everything=True)
            entries = {**shipped.entries, **entries}
            for path in asked.removed:
                entries.pop(path, None)
        if lacking := shipped.lacking(entries):
            return Lacks(self._run, store.identity, tuple(lacking))
        self._complete = entries
        return None

    def make(self) -> None:
        """Make the script's folder what it has to be, if nothing is missing for that."""
        if self._asked is not None and self._complete is not None:
            self.shipped.become(self._complete)
            self.shipped.token, self._asked = self._asked.token, None
            self.began_ns = time.clock_gettime_ns(CLOCK_OF_FILES)

    def make_home_path(self, folder: str) -> str:
        """Return the folder for caches and temporary files of processes that work in a folder."""
        return os.path.join(os.path.dirname(folder), "home")

    @property
    def _store_of_check(self) -> str:
        return os.path.join(self._own, "contents")

    def fresh_copy(self) -> str:
        """Make and return the folder of the check, as it was shipped; only the agent may change it."""
        folder = os.path.join(self._own, "run", "work")  # stacks leave this last part out, as for workers
        os.makedirs(folder)
        entries, store = self.shipped.entries, self._kept.store
        if self._of_check is not None:
            entries, store = read_entries(self._of_check.entries), ContentStore(self._store_of_check)
        KeptFolder("", folder, store, None).become(entries)
        home = self.make_home_path(folder)
        os.mkdir(home)
        if self._users.are_separate:
            self._users.assign(home, -1)
        return folder

    @property
    def staged(self) -> str:
        """Folder with the check's copies of what the ranks left; only the agent may change it."""
        return os.path.join(self._own, "staged")

    def note_socket(self, number: int) -> str:
        """Return the path of the socket for a worker's notes; each worker has another number."""
        return os.path.join(self._own, f"notes{number}")

    def write_file(self, name: str, text: str) -> str:
        """Write a file that all users may read and only the agent may change; return its path."""
        path = os.path.join(self._own, name)
        descriptor = os.open(path, NEW_FLAGS, 0o644)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def remove(self, on_progress: Callable[[], object]) -> list[str]:
        """Remove both folders, except what is kept; return those that stay.

        Calls `on_progress` repeatedly during the removal.
        """
        for receiver in self._receivers.values():
            receiver.close()
        self._kept.put_back(self.shipped)
        return [folder for folder in (self.home, self._own) if not remove_tree(folder, on_progress)]
