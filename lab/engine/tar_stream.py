"""Reads a tar that comes as a stream from a stranger's node, within bounded time and memory.

Nothing that a header states is believed: sizes of extensions and paths are limited, and what is damaged is refused in a
sentence. `tarfile` would read an extension of any size into memory. It still reads the single header blocks.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Protocol

from lab.errors import UsageError

_BLOCK = tarfile.BLOCKSIZE
_CHUNK_BYTES = 1 << 20
_LONGEST_NAME = 1 << 16
"""Bytes of a GNU long name; the longest path of Linux has 4,096."""
_LARGEST_EXTENSION = 1 << 20
"""Bytes of the PAX records before one entry."""
_MOST_EXTENSIONS = 8
"""Before one entry."""
_LARGEST_SIZE = 1 << 62
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NAMED = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


class Entry:
    """A file, a folder, or something else in a tar.

    Args:
        header: what its block states.
        name: its path.
        link: the path that it states as its target.
        size: bytes of its content.
        stream: where the content comes from.
    """

    def __init__(self, header: tarfile.TarInfo, name: str, link: str, size: int, stream: Readable) -> None:
        self.name = name
        self.size = size
        self.is_file = header.type in _PLAIN and not name.endswith("/")
        self.is_folder = header.type == tarfile.DIRTYPE or (header.type in _PLAIN and name.endswith("/"))
        self.mode = header.mode
        self.link = link if header.type == tarfile.LNKTYPE else ""
        """The path of the file that a hard link is another name of."""
        self._stream = stream
        self._left = size
        self._padding = -size % _BLOCK

    def content(self) -> Iterator[bytes]:
        """The bytes of a file, once.

        Raises:
            UsageError: the tar ends before them.
        """
        while self._left:
            data = self._stream.read(min(_CHUNK_BYTES, self._left))
            if not data:
                raise UsageError(f"the archive ends in the middle of {self.name[:200]}")
            self._left -= len(data)
            yield data
        _exactly(self._stream, self._padding)
        self._padding = 0


def read_entries(stream: Readable, most_bytes: int, most_entries: int) -> Iterator[Entry]:
    """The entries of a tar, one after the other; the content of each can be read until the next is asked for.

    Args:
        stream: the tar.
        most_bytes: how much all entries together may hold, extensions included.
        most_entries: how many there may be.

    Raises:
        UsageError: there is more, or the tar is damaged.
    """
    total = count = extensions = 0
    changed: dict[str, str] = {}
    while (block := _next_block(stream)) is not None:
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise UsageError("the archive is damaged: it holds something that is no header") from error
        size = header.size if not _holds_nothing(header) else 0
        if header.type in _NAMED or header.type in _PAX:
            extensions += 1
            limit = _LONGEST_NAME if header.type in _NAMED else _LARGEST_EXTENSION
            if not 0 <= size <= limit or extensions > _MOST_EXTENSIONS:
                raise UsageError(f"the archive is damaged: it extends an entry by {header.size:,} bytes")
            total += size + _BLOCK
            data = _exactly(stream, size + -size % _BLOCK)[:size]
            if header.type != tarfile.XGLTYPE:  # what is meant for all entries says nothing that is used here
                changed |= _long_name(header, data) if header.type in _NAMED else _pax_records(data)
            continue
        size = _stated(changed["size"]) if "size" in changed and not _holds_nothing(header) else size
        if header.type == tarfile.GNUTYPE_SPARSE or not 0 <= size < _LARGEST_SIZE:
            raise UsageError(f"the archive is damaged: {header.name[:200]} has an impossible size")
        total, count, extensions = total + size, count + 1, 0
        if count > most_entries:
            raise UsageError(f"it holds more than {most_entries:,} files and folders")
        entry = Entry(header, changed.get("path", header.name), changed.get("linkpath", header.linkname), size, stream)
        changed = {}
        if total > most_bytes:
            raise TooMuch(entry.name, total)
        yield entry
        for _ in entry.content():  # whatever nobody has read
            pass


class TooMuch(UsageError):
    """A tar holds more than it may.

    Args:
        name: the entry that is too much.
        total_bytes: what the tar holds with it.
    """

    def __init__(self, name: str, total_bytes: int) -> None:
        super().__init__(f"{name[:200]} makes it {total_bytes:,} bytes")
        self.total_bytes = total_bytes


def _holds_nothing(header: tarfile.TarInfo) -> bool:
    """Whether no content follows a header, whatever size it states."""
    return header.type in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE,
                           tarfile.FIFOTYPE)  # fmt: skip


def _next_block(stream: Readable) -> bytes | None:
    """The next header; None at the end, which a block of zeros marks."""
    first = stream.read(_BLOCK)
    block = first + _exactly(stream, _BLOCK - len(first)) if first else b""
    return block if block.strip(b"\0") else None


def _exactly(stream: Readable, size: int) -> bytes:
    parts = []
    while size > 0:
        data = stream.read(min(_CHUNK_BYTES, size))
        if not data:
            raise UsageError("the archive ends too early")
        size -= len(data)
        parts.append(data)
    return b"".join(parts)


def _long_name(header: tarfile.TarInfo, data: bytes) -> dict[str, str]:
    key = "path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
    return {key: data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}


def _pax_records(data: bytes) -> dict[str, str]:
    """The path and the size that PAX records state; of others, nothing: neither owners nor attributes are wanted."""
    found: dict[str, str] = {}
    while data.strip(b"\0"):
        length, blank, _ = data.partition(b" ")
        end = int(length) if blank and length.isdigit() and len(length) < 8 else 0
        name, equals, value = data[len(length) + 1 : end].partition(b"=")
        if not (len(length) < end <= len(data) and equals and value.endswith(b"\n")):
            raise UsageError("the archive is damaged: it holds an extension that cannot be read")
        if name in (b"path", b"linkpath", b"size"):
            found[name.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        data = data[end:]
    return found


def _stated(size: str) -> int:
    return int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else -1
