"""What was handed in: a folder or a zip file, of which nothing but plain files within limits is unpacked."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lab.errors import UsageError
from lab.features.grade.points import plain
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


_MOODLE = re.compile(r"_assignsubmission_(?:file|onlinetext)_?$")
"""What Moodle adds to a person's name and number."""
_NOT_HANDED_IN = ("__MACOSX", "__pycache__", "node_modules", "venv")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What one person handed in."""

    name: str
    """Of the file or folder, without its ending."""
    path: Path
    """A script, a folder or a zip file."""
    refused: str = ""
    """Why it is not looked at."""
    told: str = ""
    """What whoever handed it in should know of its name, as a sentence."""


def find_submissions(folder: Path, without: Collection[Path] = ()) -> list[Submission]:
    """Every `NAME.py`, `NAME.zip` and folder `NAME` in a folder, by name; no two names read alike.

    What is hidden is passed over, and what is none of the three; so is what is named in `without`, with every folder
    that holds something of it. No link is followed: one that stands for a submission is refused.

    Raises:
        UsageError: the folder cannot be read, or there is none in it.
    """
    try:
        with os.scandir(folder) as entries:
            found = [one for entry in entries if (one := _submission(entry)) is not None]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror or error}") from error
    kept = {Path(os.path.realpath(path)) for path in without}
    found = [one for one in found if not _holds(Path(os.path.realpath(one.path)), kept, one.refused)]
    if not found:
        raise UsageError(
            f"{folder} holds no submissions", "a submission is a file NAME.py, a file NAME.zip or a folder NAME"
        )
    return sorted(_each_by_its_own_name(found), key=lambda one: one.name)


def _submission(entry: os.DirEntry[str]) -> Submission | None:
    name, ending = os.path.splitext(entry.name)
    if entry.name.startswith((".", "__")) or entry.name in _NOT_HANDED_IN:
        return None
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return Submission(name=_person(entry.name), path=Path(entry.path))
    if ending.lower() not in (".py", ".zip"):
        return None
    refused = "" if stat.S_ISREG(mode) else f"{printable(entry.name)} is a link or a device, not a file"
    return Submission(name=_person(name), path=Path(entry.path), refused=refused)


def _holds(path: Path, kept: Collection[Path], refused: str) -> bool:
    return not refused and any(one == path or path in one.parents for one in kept)


def _each_by_its_own_name(found: list[Submission]) -> Iterator[Submission]:
    """Give each submission a name that reads like no other, and say so where that is not its own."""
    alike: dict[str, list[Submission]] = {}
    for one in sorted(found, key=lambda one: os.fsencode(one.path.name)):
        alike.setdefault(_reading(one.name), []).append(one)
    taken = {reading for reading, group in alike.items() if len(group) == 1}
    for group in alike.values():
        for one in group:
            if len(group) == 1:
                yield replace(one, name=plain(one.name))
                continue
            name = _untaken(plain(printable(one.path.name)), taken)
            taken.add(_reading(name))
            told = f"{len(group)} submissions have names that read alike: this one is graded as {name!r}"
            yield replace(one, name=name, told=told)


def _reading(name: str) -> str:
    """What a name has in common with those that a person, a file system, or a spreadsheet takes for the same."""
    shown = unicodedata.normalize("NFKC", plain(unicodedata.normalize("NFKC", name))).casefold()
    return unicodedata.normalize("NFKC", shown).lstrip("'")


def _untaken(name: str, taken: Collection[str]) -> str:
    """The name, or where it is taken, the name with the first number that makes it another one."""
    names = (plain(f"{name} ({number})") for number in count(2))
    return name if _reading(name) not in taken else next(one for one in names if _reading(one) not in taken)


def _person(name: str) -> str:
    return printable(_MOODLE.sub("", name)) or printable(name)


def printable(name: str) -> str:
    r"""A name of a file as text that can be written anywhere: bytes that are no text as `\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
