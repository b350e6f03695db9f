"""Files that a run made: sent to a client that wants them, and copied for the check of the scenario.

A stranger may have put anything there. So nothing follows a link, waits for a pipe, or exceeds a limit.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from typing import NamedTuple

from . import files
from .kept_folders import Difference, is_in_memory
from .messages.agent import MOST_FILES, SHARED, Finish, Made, MadeFile, Piece
from .run_folders import RunFolders

_MOST_IN_PATHS = 16 << 20
"""Limit for the characters of all reported paths; of other files only the number is reported."""
MOST_KNOWN = 2000
"""Limit for the reported files that are not copied."""
_MOST_EXAMINED = 200_000
"""Limit for the examined names of a folder: a script can make millions of them."""
_DEEPEST = 64
_PIECE_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 20


class Outputs:
    """Files that a run made in its folder, and in the shared one if requested.

    Args:
        asked: which files are wanted.
        folders: knows which files were shipped.
        ranks: rank by uid of its files.
        on_progress: called at intervals while files are read.
    """

    def __init__(
        self, asked: Finish, folders: RunFolders, ranks: Mapping[int, int], on_progress: Callable[[], object]
    ) -> None:
        self._asked = asked
        self._folders = folders
        self._ranks = ranks
        self._on_progress = on_progress
        self._reported: set[str] = set()

    def report(self) -> Made | None:
        """Return the report of every file, the smallest first; None without files on the run's only node."""
        made = sorted(self._made(), key=lambda file: file.bytes)
        sizes = accumulate(file.bytes for file in made)
        in_paths = accumulate(len(file.path) for file in made)
        most = self._asked.compared_bytes
        reported = tuple(
            file._replace(fingerprint=self._fingerprint(file.path)) if size <= most else file
            for file, size, length in zip(made[:MOST_FILES], sizes, in_paths)
            if length <= _MOST_IN_PATHS
        )
        self._reported = {file.path for file in reported}
        if not (made or most):
            return None
        top = self._folders.folder
        folder = top if self._folders.in_container and not is_in_memory(top) else ""
        return Made(self._asked.run, reported, len(made) - len(reported), folder)

    def pieces(self, paths: Iterable[str]) -> Iterator[Piece]:
        """Yield reported files in pieces; an unreadable file has no piece, or no last one."""
        for path in filter(self._reported.__contains__, paths):
            with suppress(OSError, files.NotAFile):
                for data, last in self._contents(path):
                    yield Piece(self._asked.run, path, data, last)

    def _made(self) -> Iterator[MadeFile]:
        patterns, folders = self._asked.outputs, self._folders
        if patterns is None or not self._ranks:
            return
        shared = self._asked.shared
        everywhere = [("", _wanted_files(folders.folder, patterns, folders.shipped.differences()))]
        if shared:
            everywhere.append((SHARED, _wanted_files(shared, patterns, [Difference("", os.lstat(shared))])))
        for prefix, wanted in everywhere:
            for below, facts in wanted:
                old = prefix and facts.st_ctime_ns <= folders.began_ns
                foreign = facts.st_nlink > 1 and facts.st_uid not in self._ranks  # a hard link to a file of the image
                if not old and not foreign and _is_named(below, patterns):
                    rank = self._ranks.get(facts.st_uid, min(self._ranks.values()))
                    yield MadeFile(prefix + below, rank, facts.st_size, executable=bool(facts.st_mode & 0o100))

    def _fingerprint(self, path: str) -> str:
        import hashlib  # loads OpenSSL: only if there are files

        digest = hashlib.sha256()
        with suppress(OSError, files.NotAFile):
            for data, _ in self._contents(path):
                digest.update(data)
                self._on_progress()
            return digest.hexdigest()
        return ""

    def _contents(self, path: str) -> Iterator[tuple[bytes, bool]]:
        shared = bool(self._asked.shared) and path.startswith(SHARED)
        return _contents(*(self._asked.shared, path[len(SHARED) :]) if shared else (self._folders.folder, path))


def _contents(top: str, path: str, piece_bytes: int = _PIECE_BYTES) -> Iterator[tuple[bytes, bool]]:
    """Yield pieces of a file, and whether each is the last; the size is that at the opening."""
    with open(files.open_regular_file(top, path), "rb", buffering=0) as file:
        left, last = os.fstat(file.fileno()).st_size, False
        while not last:
            data = file.read(min(piece_bytes, left))
            left -= len(data)
            last = left <= 0 or not data
            yield data, last


def _wanted_files(
    top: str, patterns: Sequence[str], entries: Iterable[Difference]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every regular file in these entries of a folder and its status; skip what is too deep or unreadable.

    Caches and hidden files are skipped unless patterns name files.
    """

    def is_asked(path: str) -> bool:
        name = os.path.basename(path)
        return bool(patterns) or not (name[0] == "." or name == "__pycache__" or name.endswith(".pyc"))

    def enter(path: str, _: os.stat_result) -> bool:
        return is_asked(path) and path.count("/", len(top) + 1) < _DEEPEST

    def everything() -> Iterator[tuple[str, os.stat_result]]:
        for entry in entries:
            path = os.path.join(top, entry.path)
            if not stat.S_ISDIR(entry.facts.st_mode):
                yield path, entry.facts
            elif not entry.path or enter(path, entry.facts):
                yield from files.walk_tree(path, enter)

    for path, facts in islice(everything(), _MOST_EXAMINED):
        if stat.S_ISREG(facts.st_mode) and is_asked(path):
            yield path[len(top) + 1 :], facts


def _is_named(below: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches a file, by its name or path, or a folder that it is in."""
    parts = below.split("/")
    names = [parts[-1], *("/".join(parts[:end]) for end in range(1, len(parts) + 1))]
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


class StagingLimits(NamedTuple):
    """Limits for the copies of a check."""

    file_bytes: int
    total_bytes: int
    files: int
    depth: int = 20
    """Depth of nested folders."""


STRICT = StagingLimits(file_bytes=32 << 20, total_bytes=64 << 20, files=2000)
"""Fits next to what the ranks left where every folder is in memory and has 256 MiB."""
USUAL = StagingLimits(file_bytes=512 << 20, total_bytes=1 << 30, files=20_000)


class Staging:
    """One copy of what the ranks of a node left, for the check of their scenario: regular files, within limits.

    Args:
        folders: has the folder of the ranks, which have no process any more, and the folder for the copies.
        owners: users whose files are copied: other files are hard links to files of others. None: all users.
        limits: how much is copied.
        on_progress: called at intervals meanwhile.
    """

    def __init__(
        self,
        folders: RunFolders,
        owners: Collection[int] | None,
        limits: StagingLimits,
        on_progress: Callable[[], object],
    ) -> None:
        self._source, self._target = folders.folder, folders.staged
        self._owners, self._limits, self._on_progress = owners, limits, on_progress
        self._files = 0
        self.left_out: dict[str, str] = {}
        """Reason by path for each path without a copy, the highest folder first, at most `MOST_KNOWN`."""
        self.omitted = 0
        """Number of other paths that were not copied."""

    def copy(self) -> None:
        """Copy all permitted files.

        Raises:
            OSError: the target cannot be made.
        """
        os.makedirs(self._target)
        total_bytes = 0
        for _, size_bytes, path in heapq.nsmallest(self._limits.files, self._find()):
            if total_bytes + size_bytes > self._limits.total_bytes:
                self._leave_out(path, f"all files together are larger than {_mib(self._limits.total_bytes)}")
                continue
            try:
                self._copy_file(path)
                total_bytes += size_bytes
            except (OSError, files.NotAFile) as error:
                self._leave_out(path, f"it cannot be copied: {getattr(error, 'strerror', '') or error}")
        if self._files > self._limits.files:
            self._leave_out(".", f"there are {self._files:,} files, of which only {self._limits.files:,} are copied")
        self.left_out = dict(sorted(self.left_out.items(), key=lambda item: (item[0].count("/"), item[0])))

    def _leave_out(self, path: str, why: str) -> None:
        if len(self.left_out) < MOST_KNOWN:
            self.left_out.setdefault(files.escape_path(path), why)
        else:
            self.omitted += 1

    def _find(self) -> Iterator[tuple[int, int, str]]:
        """Yield depth, size, and path of every regular file to copy; leave out everything else."""

        def fail(folder: str, error: OSError) -> None:
            self._leave_out(folder[len(self._source) + 1 :] or ".", f"it cannot be read: {error.strerror}")

        if os.path.islink(self._source):
            self._leave_out(".", "it is a symbolic link")
            return
        everything = files.walk_tree(self._source, lambda path, facts: not self._why_not(path, facts), fail)
        for examined, (path, facts) in enumerate(everything):
            if examined == _MOST_EXAMINED:
                self._leave_out(".", f"there are more than {_MOST_EXAMINED:,} names")
                return
            self._on_progress()
            below, why = path[len(self._source) + 1 :], self._why_not(path, facts)
            if why:
                self._leave_out(below, why)
            elif stat.S_ISREG(facts.st_mode):
                self._files += 1
                yield below.count("/"), facts.st_size, below

    def _why_not(self, path: str, facts: os.stat_result) -> str:
        """Return why something is left out; empty if it is copied, or entered."""
        limits = self._limits
        if stat.S_ISDIR(facts.st_mode):
            too_deep = path.count("/", len(self._source) + 1) >= limits.depth
            return f"it is more than {limits.depth} folders deep" if too_deep else ""
        if kind := files.describe_kind(facts.st_mode):
            return f"it is {kind}"
        if self._owners is not None and facts.st_uid not in self._owners:
            return "it belongs to no user of this run"
        return f"it is larger than {_mib(limits.file_bytes)}" if facts.st_size > limits.file_bytes else ""

    def _copy_file(self, path: str) -> None:
        """Copy a file; only the agent may change the target, so no link leads elsewhere."""
        target = os.path.join(self._target, path)
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        try:
            with open(os.open(target, files.NEW_FLAGS, 0o644), "wb") as copy:
                for chunk, _ in _contents(self._source, path, _CHUNK_BYTES):
                    self._on_progress()
                    copy.write(chunk)
        except (OSError, files.NotAFile):
            os.unlink(target)
            raise


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
