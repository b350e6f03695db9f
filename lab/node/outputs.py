"""Files that a run made: sent to whoever wants them back, and copied for the check of the scenario.

Both meet what a stranger may have left. So nothing follows a link, waits for a pipe, or reads more than it may.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

from . import files
from .messages.agent import SHARED, Finish, Made, MadeFile, Piece
from .workplace import Workplace

MOST_FILES = 2000
"""So many are told of; of more, only the number."""
MOST_KNOWN = 2000
"""So many that are not copied are told of."""
_MOST_EXAMINED = 200_000
"""Names of a folder that are looked at: a script can make millions of them."""
_DEEPEST = 64
_PIECE_BYTES = 96 * 1024
_CHUNK_BYTES = 1 << 20
_COPY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Outputs:
    """What a run made in its folder, and in the shared one where that is asked for.

    Args:
        asked: says what is wanted.
        place: knows what was shipped.
        ranks: uid -> the rank whose files those are.
    """

    def __init__(self, asked: Finish, place: Workplace, ranks: Mapping[int, int]) -> None:
        self._asked = asked
        self._place = place
        self._ranks = ranks
        self._told: set[str] = set()

    def told(self) -> Made | None:
        """Every file, the smallest first; None if there is none."""
        made = sorted(self._made(), key=lambda file: file.bytes)
        if not made:
            return None
        told, room = list[MadeFile](), self._asked.outputs_bytes
        for file in made[:MOST_FILES]:
            room -= file.bytes
            told.append(file._replace(fingerprint=self._fingerprint(file.path)) if room >= 0 else file)
        self._told = {file.path for file in told}
        return Made(self._asked.run, tuple(told), len(made) - len(told))

    def pieces(self, paths: Iterable[str]) -> Iterator[Piece]:
        """The contents of files that were told of, in pieces; of one that cannot be read, nothing or no last piece."""
        for path in self._told.intersection(paths):
            with suppress(OSError, files.NotAFile):
                for data, last in self._contents(path):
                    yield Piece(self._asked.run, path, data, last)

    def _made(self) -> Iterator[MadeFile]:
        patterns, place = self._asked.outputs, self._place
        if patterns is None or not self._ranks:
            return
        for folder, prefix in (place.folder, ""), (self._asked.shared, SHARED):
            for below, facts in _wanted_files(folder, patterns) if folder else ():
                old = facts.st_ctime_ns <= place.shipped_at and (prefix or below in place.shipped)
                foreign = facts.st_nlink > 1 and facts.st_uid not in self._ranks  # a link to a file of the image
                if not old and not foreign and _is_named(below, patterns):
                    rank = self._ranks.get(facts.st_uid, min(self._ranks.values()))
                    yield MadeFile(prefix + below, rank, facts.st_size, executable=bool(facts.st_mode & 0o100))

    def _fingerprint(self, path: str) -> str:
        import hashlib  # loads OpenSSL: only where something was made

        digest = hashlib.sha256()
        try:
            for data, _ in self._contents(path):
                digest.update(data)
        except (OSError, files.NotAFile):
            return ""
        return digest.hexdigest()

    def _contents(self, path: str) -> Iterator[tuple[bytes, bool]]:
        """Pieces of a file, and whether each is the last; as long as it is when it is opened."""
        shared = bool(self._asked.shared) and path.startswith(SHARED)
        top, below = (self._asked.shared, path[len(SHARED) :]) if shared else (self._place.folder, path)
        descriptor = files.open_regular_file(top, below)
        try:
            left, last = os.fstat(descriptor).st_size, False
            while not last:
                data = os.read(descriptor, min(_PIECE_BYTES, left))
                left -= len(data)
                last = left <= 0 or not data
                yield data, last
        finally:
            os.close(descriptor)


def _wanted_files(top: str, patterns: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every plain file below a folder, and what it is; not what lies too deep, or cannot be looked into.

    What programs leave unasked (caches, what is hidden) is passed over unless somebody says that it is wanted. Nothing
    where a script has put a link in the place of the folder.
    """

    def is_unasked(name: str) -> bool:
        return not patterns and (name[0] == "." or name == "__pycache__" or name.endswith(".pyc"))

    waiting, examined = [] if os.path.islink(top) else [""], 0
    while waiting:
        where = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(top, where)) as entries:
            for entry in entries:
                examined += 1
                if examined > _MOST_EXAMINED:
                    return
                if is_unasked(entry.name):
                    continue
                below, facts = f"{where}{entry.name}", entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode) and below.count("/") < _DEEPEST:
                    waiting.append(f"{below}/")
                elif stat.S_ISREG(facts.st_mode):
                    yield below, facts


def _is_named(below: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names a file, by its name or path, or a folder that it is in."""
    parts = below.split("/")
    names = [parts[-1], *("/".join(parts[:end]) for end in range(1, len(parts) + 1))]
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


class StagingLimits(NamedTuple):
    """How much a check is given."""

    file_bytes: int
    total_bytes: int
    files: int
    depth: int = 20
    """Folders below one another."""


STRICT = StagingLimits(file_bytes=32 << 20, total_bytes=64 << 20, files=2000)
"""What fits beside what the ranks left, where every folder is in memory and has 256 MiB."""
USUAL = StagingLimits(file_bytes=512 << 20, total_bytes=1 << 30, files=20_000)


class Staging:
    """One copy of what the ranks of a node left, for the check of their scenario: regular files, within limits.

    Args:
        source: the folder of the ranks, of which no process is left.
        target: a folder to make, which only the agent may change.
        owners: users whose files are copied: others are there by hard links. None: everybody's.
        limits: how much is copied.
        tell: called now and then while it goes on.
    """

    def __init__(
        self,
        source: str,
        target: str,
        owners: Collection[int] | None,
        limits: StagingLimits,
        tell: Callable[[], object],
    ) -> None:
        self._source, self._target = source, target
        self._owners, self._limits, self._tell = owners, limits, tell
        self._files = 0
        self.left_out: dict[str, str] = {}
        """By path: why it was not copied; what lies highest comes first, and no more of it than `MOST_KNOWN`."""
        self.more = 0
        """How much else was not copied."""

    def copy(self) -> None:
        """Copy what may be copied.

        Raises:
            OSError: the target cannot be made.
        """
        os.makedirs(self._target)
        total_bytes = 0
        for _, size_bytes, path in heapq.nsmallest(self._limits.files, self._find()):
            if total_bytes + size_bytes > self._limits.total_bytes:
                self._leave_out(path, f"the files together have more than {_mib(self._limits.total_bytes)}")
            elif self._copy_file(path, size_bytes):
                total_bytes += size_bytes
        if self._files > self._limits.files:
            self._leave_out(".", f"there are {self._files:,} files, of which only {self._limits.files:,} are copied")
        self.left_out = dict(sorted(self.left_out.items(), key=lambda item: (item[0].count("/"), item[0])))

    def _leave_out(self, path: str, why: str) -> None:
        if len(self.left_out) < MOST_KNOWN:
            self.left_out.setdefault(files.printable(path), why)
        else:
            self.more += 1

    def _find(self) -> Iterator[tuple[int, int, str]]:
        """Depth, size and path of every regular file that may be copied; what else there is, is left out."""
        examined, waiting = 0, [""]
        for folder in waiting:
            try:
                descriptor = files.open_folder(self._source, folder)
            except OSError as error:
                self._leave_out(folder or ".", f"it cannot be read: {error.strerror}")
                continue
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        examined += 1
                        if examined > _MOST_EXAMINED:
                            self._leave_out(folder or ".", f"there are more than {_MOST_EXAMINED:,} names")
                            return
                        self._tell()
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        facts, depth = entry.stat(follow_symlinks=False), path.count("/")
                        why = self._why_not(facts, depth)
                        if why:
                            self._leave_out(path, why)
                        elif stat.S_ISDIR(facts.st_mode):
                            waiting.append(path)
                        else:
                            self._files += 1
                            yield depth, facts.st_size, path
            finally:
                os.close(descriptor)

    def _why_not(self, facts: os.stat_result, depth: int) -> str:
        """Why something is left out; empty where it is copied, or looked into."""
        if stat.S_ISDIR(facts.st_mode):
            return "" if depth < self._limits.depth else f"it lies more than {self._limits.depth} folders deep"
        kind = files.describe_kind(facts.st_mode)
        if kind:
            return f"it is {kind}"
        if self._owners is not None and facts.st_uid not in self._owners:
            return "it belongs to nobody of this run"
        large = facts.st_size > self._limits.file_bytes
        return f"it is larger than {_mib(self._limits.file_bytes)}" if large else ""

    def _copy_file(self, path: str, size_bytes: int) -> bool:
        """Copy a file; whether that was possible."""
        try:
            source = files.open_regular_file(self._source, path)
            try:
                self._copy_bytes(source, path, size_bytes)
            finally:
                os.close(source)
        except (OSError, files.NotAFile) as error:
            why = getattr(error, "strerror", "") or str(error)
            self._leave_out(path, f"it cannot be copied: {why}")
            return False
        return True

    def _copy_bytes(self, source: int, path: str, left: int) -> None:
        """Copy so many bytes; only the agent may change the target, so no link leads anywhere."""
        target = os.path.join(self._target, path)
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        with open(os.open(target, _COPY, 0o644), "wb", buffering=0) as copy:
            try:
                while left > 0 and (chunk := os.read(source, min(_CHUNK_BYTES, left))):
                    self._tell()
                    rest = memoryview(chunk)
                    while rest:
                        rest = rest[copy.write(rest) or 0 :]
                    left -= len(chunk)
            except OSError:
                os.unlink(target)
                raise


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
