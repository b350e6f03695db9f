"""Zip files of strangers: unpacked within limits, and nothing but plain files below one folder."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lab.errors import UsageError
from lab.words import format_limit

_CHUNK_BYTES = 1 << 16
_FIRST_PRINTABLE = " "
_TAKEN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Room(NamedTuple):
    """How much may be in what somebody hands in."""

    bytes: int
    files: int
    depth: int = 20
    """Folders below one another."""

    def refuse_more(self, count: int, size: int) -> None:
        """Refuse more files or bytes than that.

        Raises:
            UsageError: there are more.
        """
        if size > self.bytes:
            raise UsageError(f"it holds more than {format_limit(self.bytes)}")
        if count > self.files:
            raise UsageError(f"it holds more than {self.files:,} files")


def unzip(path: Path, folder: Path, room: Room) -> list[str]:
    """Unpack a zip file into an empty folder; returns what was left out, a phrase each.

    The sizes that it states are not believed: bytes are counted as they come out. Links, and what macOS adds, are left
    out.

    Raises:
        UsageError: it is no zip file or damaged, needs a password, holds too much, or names a file outside of itself,
            twice, or in a way that other systems read differently.
    """
    left_out, seen, size = list[str](), set[PurePosixPath](), 0
    try:
        room.refuse_more(0, path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            room.refuse_more(len(archive.infolist()), 0)
            for entry in archive.infolist():
                below = _inside(entry, room)
                if entry.is_dir() or below.parts[0] == "__MACOSX" or below.name == ".DS_Store":
                    continue
                if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                    left_out.append(f"{below} is a link or a device")
                    continue
                if entry.compress_type not in _TAKEN:  # others may take gigabytes of memory
                    raise UsageError("it is compressed in another way than by deflate, which is not taken")
                if below in seen:
                    raise UsageError(f"it holds {str(below)!r} twice")
                seen.add(below)
                size += _extract(archive, entry, folder / below, room, size)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise UsageError("it is no zip file, or damaged") from error
    except RuntimeError as error:  # what zipfile says of passwords; NotImplementedError is one too
        raise UsageError("it needs a password") from error
    except OSError as error:
        raise UsageError(f"it cannot be unpacked: {error.strerror or error}") from error
    return left_out


def _inside(entry: zipfile.ZipInfo, room: Room) -> PurePosixPath:
    """The path of an entry, if that is one below the folder on every system."""
    name = entry.filename
    below = PurePosixPath(name)
    odd = "\\" in name or ":" in below.parts[0] if below.parts else True
    if odd or below.is_absolute() or ".." in below.parts or any(letter < _FIRST_PRINTABLE for letter in name):
        raise UsageError(f"it names {name[:100]!r}, which is no path below a folder")
    if len(below.parts) > room.depth:
        raise UsageError(f"it holds folders that lie more than {room.depth} deep")
    return below


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, room: Room, size: int) -> int:
    os.makedirs(path.parent, exist_ok=True)
    written = 0
    with archive.open(entry) as source, open(path, "xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            written += len(chunk)
            room.refuse_more(0, size + written)
            target.write(chunk)
    return written
