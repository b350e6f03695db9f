"""Copies of what the ranks of a node left, for the check of their scenario: regular files, within limits.

A check reads files that a stranger's script may have made. So it never meets a pipe that blocks it, a device, a link
to a file of its own, a terabyte of nothing, or more files and folders than it can list.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from . import below

_CHUNK_BYTES = 1 << 20
_COPY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_EXAMINED = 200_000
"""Names that are looked at: a script can make millions of them."""
MOST_KNOWN = 2000


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


class _Found(NamedTuple):
    """A regular file that may be copied. Files sort by how deep they lie, then by size and name."""

    depth: int
    size_bytes: int
    path: str


class Staging:
    """One copy of a folder.

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
        for file in heapq.nsmallest(self._limits.files, self._find()):
            if total_bytes + file.size_bytes > self._limits.total_bytes:
                self._leave_out(file.path, f"the files together have more than {_mib(self._limits.total_bytes)}")
            elif self._copy_file(file):
                total_bytes += file.size_bytes
        if self._files > self._limits.files:
            self._leave_out(".", f"there are {self._files:,} files, of which only {self._limits.files:,} are copied")
        self.left_out = dict(sorted(self.left_out.items(), key=lambda item: (item[0].count("/"), item[0])))

    def _leave_out(self, path: str, why: str) -> None:
        if len(self.left_out) < MOST_KNOWN:
            self.left_out.setdefault(below.printable(path), why)
        else:
            self.more += 1

    def _find(self) -> Iterator[_Found]:
        """Every regular file that is not too large or too deep, in no order; what else there is, is left out."""
        examined, waiting = 0, deque([""])
        while waiting:
            folder = waiting.popleft()
            try:
                descriptor = below.open_folder(self._source, folder)
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
                        facts = entry.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(facts.st_mode):
                            why = self._why_not(facts)
                            if why:
                                self._leave_out(path, why)
                            else:
                                self._files += 1
                                yield _Found(path.count("/"), facts.st_size, path)
                        elif path.count("/") < self._limits.depth:
                            waiting.append(path)
                        else:
                            self._leave_out(path, f"it lies more than {self._limits.depth} folders deep")
            finally:
                os.close(descriptor)

    def _why_not(self, facts: os.stat_result) -> str:
        """Why something that is no folder is left out; empty where it is copied."""
        kind = below.describe_kind(facts.st_mode)
        if kind:
            return f"it is {kind}"
        if self._owners is not None and facts.st_uid not in self._owners:
            return "it belongs to nobody of this run"
        if facts.st_size > self._limits.file_bytes:
            return f"it is larger than {_mib(self._limits.file_bytes)}"
        return ""

    def _copy_file(self, file: _Found) -> bool:
        """Copy a file; whether that was possible."""
        try:
            source = below.open_regular_file(self._source, file.path)
            try:
                self._copy_bytes(source, file)
            finally:
                os.close(source)
        except (OSError, below.NotAFile) as error:
            why = getattr(error, "strerror", "") or str(error)
            self._leave_out(file.path, f"it cannot be copied: {why}")
            return False
        return True

    def _copy_bytes(self, source: int, file: _Found) -> None:
        folder, _, name = file.path.rpartition("/")
        here = self._make_folder(folder)
        try:
            target = os.open(name, _COPY, 0o644, dir_fd=here)
            try:
                left = file.size_bytes
                while left > 0:
                    self._tell()
                    chunk = os.read(source, min(_CHUNK_BYTES, left))
                    if not chunk:
                        break
                    _write_all(target, chunk)
                    left -= len(chunk)
            except OSError:
                os.unlink(name, dir_fd=here)
                raise
            finally:
                os.close(target)
        finally:
            os.close(here)

    def _make_folder(self, path: str) -> int:
        """Open a folder of the target, which is made with those around it."""
        here = below.open_folder(self._target)
        for part in path.split("/") if path else ():
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
            finally:
                os.close(here)
            here = inner
        return here


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
