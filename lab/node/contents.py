"""Contents of files by their digest: the stream that carries them to a node, and the store that keeps them there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL
except ImportError:
    from hashlib import blake2b

from .files import READ_FLAGS, closing_descriptor, write_all

DIGEST_BYTES = 20
_SIZE_BYTES = 8
_HEADER_BYTES = DIGEST_BYTES + _SIZE_BYTES
_SMALL_BYTES = 1 << 20
_PACK, _PACK_BYTES = ".pack", 16 << 20
"""The name of a pack ends so; it begins no other content from this size on."""
LIMIT_BYTES = 10 << 30
"""Size that a node's files are reduced to; those of its folders always stay."""
FILE, EXECUTABLE, LINK = "f", "x", "l"


def new_digest(data: bytes | memoryview = b"") -> Any:
    """Return a hash of contents, to be updated with more data."""
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


def _read_header(header: bytes | memoryview) -> tuple[str, int]:
    return header[:DIGEST_BYTES].hex(), int.from_bytes(header[DIGEST_BYTES:], "big")


class ContentStore:
    """A folder of packs, each a stream of contents. Only agents may read and change it; those on one machine share it.

    Args:
        folder: the folder, which is created.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        self._packs = set[str]()
        self._contents: dict[str, tuple[str, int, int]] = {}
        """By digest: the pack, and the content's offset and size there."""
        self._refresh()

    @property
    def identity(self) -> str:
        """A text that is the same for agents that share this store."""
        facts = os.stat(self.folder)
        return f"{facts.st_dev}:{facts.st_ino}"

    def lacking(self, digests: Iterable[str]) -> list[str]:
        """Return those digests whose contents are not there, sorted."""
        self._refresh()
        return sorted({digest for digest in digests if digest not in self._contents})

    def _refresh(self) -> None:
        """Read the headers in packs that other agents have added, and forget those that they removed."""
        packs = {name for name, _ in self._list()}
        if not self._packs <= packs:
            self._packs, self._contents = set(), {}
        for name in packs - self._packs:
            with suppress(FileNotFoundError), open(f"{self.folder}/{name}", "rb", buffering=0) as file:
                at, end = 0, os.fstat(file.fileno()).st_size
                while len(header := os.pread(file.fileno(), _HEADER_BYTES, at)) == _HEADER_BYTES:
                    digest, size = _read_header(header)
                    if (at := at + _HEADER_BYTES + size) > end:  # the machine failed before all of it was on disk
                        break
                    self._contents[digest] = name, at - size, size
        self._packs = packs

    def create(self) -> tuple[BinaryIO, str]:
        """Return a new file for a pack, and its path."""
        path = f"{self.folder}/{os.urandom(8).hex()}.part"
        return open(path, "xb", buffering=0), path

    def add(self, path: str, name: str) -> None:
        """Add a complete file that `create` has returned; the same contents have the same name."""
        os.rename(path, f"{self.folder}/{name}{_PACK}")
        self._refresh()

    def read(self, digest: str) -> bytes:
        """Return a content."""
        name, offset, size = self._contents[digest]
        with open(f"{self.folder}/{name}", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)

    def copy(self, digest: str, target: int) -> None:
        """Append a content to an open file."""
        name, offset, size = self._contents[digest]
        with closing_descriptor(os.open(f"{self.folder}/{name}", READ_FLAGS)) as source:
            while size and (copied := _copy_range(source, offset, size, target)):
                offset, size = offset + copied, size - copied

    def size_bytes(self) -> int:
        """Return the size of all contents."""
        return sum(facts.st_size for _, facts in self._list())

    def shrink(self, needed: set[str], limit_bytes: int = LIMIT_BYTES) -> None:
        """Remove the oldest packs beyond the limit; those with needed contents stay."""
        self._refresh()
        needed_packs = {name for digest, (name, _, _) in self._contents.items() if digest in needed}
        total = 0
        for name, facts in sorted(self._list(), key=lambda one: one[1].st_mtime, reverse=True):
            total += facts.st_size
            if total > limit_bytes and name not in needed_packs:
                with suppress(OSError):
                    os.unlink(f"{self.folder}/{name}")

    def _list(self) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another agent has just removed it
                    if entry.name.endswith(_PACK):
                        yield entry.name, entry.stat()


def _copy_range(source: int, offset: int, size: int, target: int) -> int:
    """Append a part of a file to another; return the size of what was copied."""
    if size > _SMALL_BYTES:
        with suppress(OSError, AttributeError):  # not between these file systems, or not with this kernel or Python
            return os.copy_file_range(source, target, size, offset)
    data = os.pread(source, min(size, _SMALL_BYTES), offset)
    write_all(target, data)
    return len(data)


class Receiver:
    """Reads a stream of contents into packs of a store.

    Args:
        store: receives the packs.
    """

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self._buffer = b""
        """The beginning of a header."""
        self._digest, self._left = "", 0
        """Of a content of which a part has arrived: its digest, and the missing bytes."""
        self._hash = new_digest()
        self._pack: tuple[BinaryIO, str] | None = None
        self._pack_bytes = 0
        self._digests = new_digest()
        """Of the contents in the pack."""

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """Read the next part of the stream; after the last one, the store has everything that was read.

        Raises:
            ValueError: a content does not have its digest: its file changed while it was sent.
            OSError: a content cannot be written.
        """
        view = memoryview(self._buffer + data)
        at = written = 0
        while True:
            if not self._digest:
                if len(view) < at + _HEADER_BYTES:
                    break
                self._digest, self._left = _read_header(view[at : at + _HEADER_BYTES])
                self._hash, at = new_digest(), at + _HEADER_BYTES
            part = view[at : at + self._left]
            self._hash.update(part)
            at, self._left = at + len(part), self._left - len(part)
            if self._left:
                break
            if self._hash.hexdigest() != self._digest:
                self.close()
                raise ValueError("a file changed while it was sent; run again")
            self._digests.update(self._hash.digest())
            self._digest = ""
            if self._pack_bytes + at - written >= _PACK_BYTES:
                self._write(view[written:at])
                self._finish_pack()
                written = at
        self._write(view[written:at])
        self._buffer = bytes(view[at:])
        if last and not self._digest:
            self._finish_pack()

    def _write(self, part: memoryview) -> None:
        if self._pack is None and part:
            self._pack = self._store.create()
        self._pack_bytes += len(part)
        while self._pack and part:
            part = part[self._pack[0].write(part) or 0 :]

    def _finish_pack(self) -> None:
        if self._pack is not None:
            self._pack[0].close()
            self._store.add(self._pack[1], self._digests.hexdigest())
        self._pack, self._pack_bytes, self._digests = None, 0, new_digest()

    def close(self) -> None:
        """Remove a pack that has not arrived completely."""
        if self._pack is not None:
            self._pack[0].close()
            with suppress(OSError):
                os.unlink(self._pack[1])
            self._pack = None
