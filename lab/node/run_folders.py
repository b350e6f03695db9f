"""The folders of a run in its node: one for workers, and one that only the agent may change.

The agent writes nothing where a script could have put a link in the way.
"""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections.abc import Callable

from .files import remove_tree
from .messages.agent import Files
from .users import Users


def clear_folders(root: str) -> None:
    """Make the folder of an agent, and remove what an interrupted run left there."""
    os.makedirs(root, exist_ok=True)
    for folder in _folders(root):
        remove_tree(folder)


def _folders(root: str) -> tuple[str, str]:
    """Return the folder for workers, and the one for the agent alone."""
    return os.path.join(root, "run"), os.path.join(root, "own")


class RunFolders:
    """The folders of a run, made empty."""

    def __init__(self, root: str, users: Users) -> None:
        self._users = users
        self.home, self._own = _folders(root)
        """Where workers may write."""
        self.folder = os.path.join(self.home, "work")
        """The scenario's folder for the workers."""
        self._archive: list[bytes] = []
        self._archive_of_check: list[bytes] = []
        """Empty: the check gets the workers' archive."""
        self.shipped: set[str] = set()
        """Paths of the shipped files."""
        self.shipped_at = 0
        """ctime of the last of them, in nanoseconds."""
        for folder in (self.home, self._own):
            if not remove_tree(folder):
                raise OSError(f"{folder} holds something that cannot be removed")
        os.makedirs(self._own)
        for folder in (self.home, self.folder, self.make_home_path(self.folder)):
            os.mkdir(folder)
            if users.are_separate:
                users.assign(folder, 0)
                os.chmod(folder, 0o775)

    def receive(self, files: Files) -> None:
        """Add a piece of the compressed tar of the scenario's folder; unpack it after the last piece.

        The check's archive is kept until the check begins.
        """
        (self._archive_of_check if files.for_check else self._archive).append(files.data)
        if files.last and not files.for_check:
            with self._users.files_of_workers():
                self.shipped.update(self._unpack(self._archive, self.folder))
            self.shipped_at = _now(self._own)

    def make_home_path(self, folder: str) -> str:
        """Return the folder for caches and temporary files of processes that work in a folder."""
        return os.path.join(os.path.dirname(folder), "home")

    def fresh_copy(self) -> str:
        """Make and return the folder of the check, as it was shipped; only the agent may change it."""
        folder = os.path.join(self._own, "run", "work")  # stacks leave this last part out, as for workers
        os.makedirs(folder)
        self._unpack(self._archive_of_check or self._archive, folder)
        home = self.make_home_path(folder)
        """Folders for workers, and for the agent alone."""
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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def remove(self, on_progress: Callable[[], object]) -> list[str]:
        """Remove both folders; return those that stay. Calls `on_progress` repeatedly during the removal."""
        return [folder for folder in (self.home, self._own) if not remove_tree(folder, on_progress)]

    def _unpack(self, pieces: list[bytes], folder: str) -> list[str]:
        """Unpack an archive; return the paths of its entries."""
        data = zlib.decompress(b"".join(pieces))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                if self._users.are_separate:  # all workers get the owner's permissions
                    entry.mode |= (entry.mode & 0o700) >> 3
                archive.extract(entry, folder)
            return archive.getnames()


def _now(folder: str) -> int:
    """Return the time by the clock of file timestamps, which is coarser than others."""
    path = os.path.join(folder, "clock")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return os.stat(path).st_ctime_ns
