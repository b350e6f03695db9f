"""Contents of files by their digest: the stream that carries them to a node, and the store that keeps them there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from .files import write_all

DIGEST_BYTES = 20
_SIZE_BYTES = 8
_HEADER_BYTES = DIGEST_BYTES + _SIZE_BYTES
_COPY_BYTES = 1 << 30
_SMALL_BYTES = 1 << 20
LIMIT_BYTES = 10 << 30
"""Size that a node's files are reduced to; those of its folders always stay."""
FILE, EXECUTABLE, LINK = "f", "x", "l"


def new_digest(data: bytes | memoryview = b"") -> Any:
    """Return a hash of contents, to be updated with more data."""
    try:
        from _blake2 import blake2b  # hashlib loads OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(data, digest_size=DIGEST_BYTES)


class Entry(NamedTuple):
    """A file or a link in a folder; the content of a link is where it leads."""

    kind: str
    """`FILE`, `EXECUTABLE`, or `LINK`."""
    mtime: int
    """Unix time of its last change; 0 for a link."""
    digest: str
    """Of its content."""


def write_entries(entries: Iterable[tuple[str, Entry]]) -> str:
    """Return paths and entries as text; no normalized relative path has two slashes in a row."""
    return "//".join(f"{entry.kind}/{entry.mtime}/{entry.digest}/{path}" for path, entry in entries)


def read_entries(text: str) -> dict[str, Entry]:
    """Return the entries in a text by their paths."""
    entries = {}
    for line in text.split("//") if text else ():
        kind, mtime, digest, path = line.split("/", 3)
        entries[path] = Entry(kind, int(mtime), digest)
    return entries


def write_header(digest: str, size: int) -> bytes:
    """Return what precedes a content of this size in a stream of contents."""
    return bytes.fromhex(digest) + size.to_bytes(_SIZE_BYTES, "big")


class ContentStore:
    """A folder of contents. Only agents may read and change it; those on one machine share it.

    Args:
        folder: the folder, which is created.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        self._groups = set(os.listdir(folder))
        self._added_bytes = 0
        """Since `shrink`."""

    @property
    def identity(self) -> str:
        """A text that is the same for agents that share this store."""
        facts = os.stat(self.folder)
        return f"{facts.st_dev}:{facts.st_ino}"

    def path(self, digest: str) -> str:
        """Return the path of a content, whether it is there or not."""
        return f"{self.folder}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str) -> bool:
        """Return whether a content is there, completely."""
        return os.path.exists(self.path(digest))

    def create(self) -> tuple[BinaryIO, str]:
        """Return a new file for a content, and its path."""
        path = f"{self.folder}/{os.urandom(8).hex()}.part"
        return open(path, "xb", buffering=0), path

    def add(self, path: str, digest: str, size: int) -> None:
        """Add a complete file that `create` has returned."""
        if (group := digest[:2]) not in self._groups:
            os.makedirs(f"{self.folder}/{group}", exist_ok=True)
            self._groups.add(group)
        os.rename(path, self.path(digest))
        self._added_bytes += size

    def read(self, digest: str) -> bytes:
        """Return a content."""
        with open(self.path(digest), "rb") as file:
            return file.read()

    def copy(self, digest: str, target: int) -> None:
        """Append a content to an open file; the kernel shares the blocks of both files where it can."""
        with open(self.path(digest), "rb", buffering=0) as source:
            while _copy_range(source.fileno(), target):
                pass

    def size_bytes(self) -> int:
        """Return the size of all contents."""
        return sum(facts.st_size for _, facts in self._list())

    def shrink(self, needed: set[str], limit_bytes: int = LIMIT_BYTES) -> None:
        """Remove the oldest contents beyond the limit, if much was added; needed ones stay."""
        if self._added_bytes < limit_bytes // 10:
            return
        self._added_bytes = 0
        newest_first = sorted(self._list(), key=lambda one: one[1].st_mtime, reverse=True)
        total = 0
        for path, facts in newest_first:
            total += facts.st_size
            if total > limit_bytes and "".join(path.split("/")[-2:]) not in needed:
                with suppress(OSError):
                    os.unlink(path)

    def _list(self) -> Iterator[tuple[str, os.stat_result]]:
        for group in os.listdir(self.folder):
            with suppress(OSError), os.scandir(f"{self.folder}/{group}") as entries:  # or a file that is not complete
                for entry in entries:
                    yield entry.path, entry.stat()


def _copy_range(source: int, target: int) -> int:
    """Copy the next part of a file; return its size."""
    with suppress(OSError, AttributeError):  # not between these file systems, or not with this kernel or Python
        return os.copy_file_range(source, target, _COPY_BYTES)
    data = os.read(source, _SMALL_BYTES)
    write_all(target, data)
    return len(data)


class Receiver:
    """Reads a stream of contents into a store.

    Args:
        store: receives each complete content.
    """

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self._buffer = b""
        self._digest, self._left = "", 0
        """Of a content of which a part has arrived: its digest, and the missing bytes."""
        self._size = 0
        self._file: tuple[BinaryIO, str] | None = None
        self._hash = new_digest()

    def feed(self, data: bytes) -> None:
        """Read the next part of the stream.

        Raises:
            ValueError: a content does not have its digest: its file changed while it was sent.
            OSError: a content cannot be written.
        """
        view = memoryview(self._buffer + data)
        while True:
            if self._file is None:
                if len(view) < _HEADER_BYTES:
                    break
                self._digest = view[:DIGEST_BYTES].hex()
                self._left = self._size = int.from_bytes(view[DIGEST_BYTES:_HEADER_BYTES], "big")
                view = view[_HEADER_BYTES:]
                self._hash, self._file = new_digest(), self._store.create()
            part = view[: self._left]
            view, self._left = view[len(part) :], self._left - len(part)
            self._hash.update(part)
            file, path = self._file
            while part:
                part = part[file.write(part) or 0 :]
            if self._left:
                break
            file.close()
            self._file = None
            if self._hash.hexdigest() != self._digest:
                os.unlink(path)
                raise ValueError("a file changed while it was sent; run again")
            self._store.add(path, self._digest, self._size)
        self._buffer = bytes(view)

    def close(self) -> None:
        """Remove a content that has not arrived completely."""
        if self._file is not None:
            self._file[0].close()
            with suppress(OSError):
                os.unlink(self._file[1])
