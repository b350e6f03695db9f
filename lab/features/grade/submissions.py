"""What was handed in: found, unpacked within limits, and put beside what the assignment gives to all."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from lab.errors import UsageError
from lab.features.grade.grades import plain
from lab.features.grade.keys import grading_of
from lab.frozen import Frozen
from lab.spec.scenario import Scenario
from lab.words import format_limit, join_words

_CHUNK_BYTES = 1 << 18
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


class _Entry(NamedTuple):
    """Something in what was handed in that is no folder."""

    path: PurePosixPath
    open: Callable[[], IO[bytes]] | None
    """None: it is a link or a device."""


def _copy(entries: Iterable[_Entry], folder: Path, room: Room) -> list[str]:
    """Write files into a folder; returns what was left out, a phrase each.

    The sizes that they state are not believed: bytes are counted as they come.

    Raises:
        UsageError: there is too much, or something twice, or it cannot be read.
    """
    left_out, size = list[str](), 0
    for number, entry in enumerate(entries, start=1):
        name = printable(str(entry.path))
        room.refuse_more(number, size)
        if len(entry.path.parts) > room.depth:
            raise UsageError(f"it holds folders that lie more than {room.depth} deep")
        if entry.open is None:
            left_out.append(f"{name} is a link or a device")
            continue
        target = folder / entry.path
        try:
            os.makedirs(target.parent, exist_ok=True)
            with entry.open() as source, open(target, "xb") as file:
                while chunk := source.read(_CHUNK_BYTES):
                    size += len(chunk)
                    room.refuse_more(number, size)
                    file.write(chunk)
        except FileExistsError:
            raise UsageError(f"it holds {name!r} twice") from None
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    return left_out


def unzip(path: Path, folder: Path, room: Room) -> list[str]:
    """Unpack a zip file into an empty folder; returns what was left out, a phrase each.

    Links, and what macOS adds, are left out.

    Raises:
        UsageError: it is no zip file or damaged, needs a password, holds too much, or names a file outside of itself,
            twice, or in a way that other systems read differently.
    """
    try:
        room.refuse_more(0, path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            room.refuse_more(len(archive.infolist()), 0)
            return _copy(_zip_entries(archive), folder, room)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise UsageError("it is no zip file, or damaged") from error
    except RuntimeError as error:  # what zipfile says of passwords; NotImplementedError is one too
        raise UsageError("it needs a password") from error
    except OSError as error:
        raise UsageError(f"it cannot be unpacked: {error.strerror or error}") from error


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for entry in archive.infolist():
        name, below = entry.filename, PurePosixPath(entry.filename)
        is_foreign = not below.parts or "\\" in name or ":" in below.parts[0] or below.is_absolute()
        if is_foreign or ".." in below.parts or any(letter < _FIRST_PRINTABLE for letter in name):
            raise UsageError(f"it names {name[:100]!r}, which is no path below a folder")
        if entry.is_dir() or below.parts[0] == "__MACOSX" or below.name == ".DS_Store":
            continue
        if entry.compress_type not in _TAKEN:  # others may take gigabytes of memory
            raise UsageError("it is compressed in another way than by deflate, which is not taken")
        is_plain = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        yield _Entry(below, partial(archive.open, entry) if is_plain else None)


def _folder_entries(top: Path) -> Iterator[_Entry]:
    waiting = [PurePosixPath()]
    while waiting:
        where = waiting.pop()
        for path in _visible(top / where):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                waiting.append(where / path.name)
            else:
                yield _Entry(where / path.name, _opener(path))


def _opener(path: Path) -> Callable[[], IO[bytes]] | None:
    """What opens a file, unless it is none; a link that is put there meanwhile is not followed."""
    return (lambda: open(os.open(path, _FILE), "rb")) if stat.S_ISREG(os.lstat(path).st_mode) else None


_MOODLE = re.compile(r"_assignsubmission_(?:file|onlinetext)_?$")
"""What Moodle adds to a person's name and number."""
_NOT_HANDED_IN = ("__MACOSX", "__pycache__", "node_modules", "venv")


class Submission(Frozen):
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
    kept = [Path(os.path.realpath(path)) for path in without]
    try:
        with os.scandir(folder) as entries:
            found = [one for entry in entries if (one := _submission(entry, kept))]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror or error}") from error
    if not found:
        raise UsageError(f"{folder} holds no submissions", "a submission is NAME.py, NAME.zip or a folder NAME")
    return sorted(_each_by_its_own_name(found), key=lambda one: one.name)


def _submission(entry: os.DirEntry[str], kept: Collection[Path]) -> Submission | None:
    name, ending = os.path.splitext(entry.name)
    mode, refused = entry.stat(follow_symlinks=False).st_mode, ""
    is_folder, is_file = stat.S_ISDIR(mode), ending.lower() in (".py", ".zip")
    if entry.name.startswith((".", "__")) or entry.name in _NOT_HANDED_IN or not (is_folder or is_file):
        return None
    if not is_folder and not stat.S_ISREG(mode):
        refused = f"{printable(entry.name)} is a link or a device, not a file"
    real = Path(os.path.realpath(entry.path))
    if not refused and any(one == real or real in one.parents for one in kept):
        return None
    name = entry.name if is_folder else name
    person = printable(_MOODLE.sub("", name)) or printable(name)
    return Submission(name=person, path=Path(entry.path), refused=refused)


def _each_by_its_own_name(found: Iterable[Submission]) -> Iterator[Submission]:
    """Give each submission a name that reads like no other, and say so where that is not its own."""
    ordered = sorted(found, key=lambda one: os.fsencode(one.path.name))
    times = Counter(_reading(one.name) for one in ordered)
    taken = {reading for reading, count in times.items() if count == 1}
    for one in ordered:
        alike, name, told = times[_reading(one.name)], plain(one.name), ""
        if alike > 1:
            own = plain(printable(one.path.name))
            names = chain([own], (plain(f"{own} ({number})") for number in count(2)))
            name = next(name for name in names if _reading(name) not in taken)
            taken.add(_reading(name))
            told = f"{alike} submissions have names that read alike: this one is graded as {name!r}"
        yield replace(one, name=name, told=told)


def _reading(name: str) -> str:
    """What a name has in common with those that a person, a file system, or a spreadsheet takes for the same."""
    shown = unicodedata.normalize("NFKC", plain(unicodedata.normalize("NFKC", name))).casefold()
    return unicodedata.normalize("NFKC", shown).lstrip("'")


def printable(name: str) -> str:
    r"""A name of a file as text that can be written anywhere: bytes that are no text as `\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


ROOM = Room(bytes=16 << 20, files=1000)
"""What one submission may hold."""
_PREFIX = "lab-grade-"
_MOST_TOLD = 3
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PASSED_OVER = {"__pycache__", "__MACOSX", "node_modules", "venv", "site-packages"}


class Staged(NamedTuple):
    """What is shipped."""

    script: Path
    """In a folder of its own."""
    told: tuple[str, ...]
    """What whoever handed it in should know, a sentence each."""


@contextmanager
def staged(submission: Submission, assignment: Scenario) -> Iterator[Staged]:
    """Put a submission in the place of the script of an assignment, for as long as the block lasts.

    No link is followed, and nothing hidden is taken.

    Raises:
        UsageError: it cannot be run; the message is for whoever handed it in.
    """
    if submission.refused:
        raise UsageError(submission.refused)
    with own_folder() as own:
        unpacked, folder = own / "unpacked", own / "work"
        unpacked.mkdir()
        folder.mkdir()
        told = [submission.told, *_put(submission.path, unpacked, folder, assignment.script.name)]
        told += _add_files(assignment, folder)
        yield Staged(folder / assignment.script.name, tuple(filter(None, told)))


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder that names its process; those that dead processes left are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):  # somebody else has just removed it
            if pid.isdigit() and not _lives(int(pid)) and left.lstat().st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return True


def _put(source: Path, unpacked: Path, folder: Path, name: str) -> list[str]:
    """Copy what was handed in into an empty folder; returns what there is to tell of it."""
    if source.suffix.lower() == ".py":
        return _left_out(_copy([_Entry(PurePosixPath(name), _opener(source))], folder, ROOM))
    told = []
    if source.is_file():
        told, source = _left_out(unzip(source, unpacked, ROOM)), unpacked
    top = _top(source, name)
    zips = [path for path in _visible(top) if path.suffix.lower() == ".zip" and not path.is_symlink()]
    if source is not unpacked and len(zips) == 1 and not _scripts(top):
        told += _left_out(unzip(zips[0], unpacked, ROOM))
        top = _top(unpacked, name)
    told += _left_out(_copy(_folder_entries(top), folder, ROOM))
    if not (folder / name).is_file():
        scripts = _scripts(folder)
        if len(scripts) != 1:
            there = join_words(printable(path.name) for path in _visible(folder)[:10])
            raise UsageError(f"there is no {name} in it" + (f"; it holds {there}" if there else ": it is empty"))
        os.replace(scripts[0], folder / name)
        told.append(f"{printable(scripts[0].name)} was taken for {name}: it is the only script")
    return told


def _top(folder: Path, name: str) -> Path:
    """The folder that holds the script: that one, or one that is all that is in it."""
    for _ in range(ROOM.depth):
        inside = _visible(folder)
        if len(inside) != 1 or inside[0].name == name or inside[0].is_symlink() or not inside[0].is_dir():
            break
        folder = inside[0]
    return folder


def _visible(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror or error}") from error
    return [
        folder / name
        for name in names
        if name not in _PASSED_OVER and not name.startswith(".") and not name.endswith((".pyc", ".pyo"))
    ]


def _scripts(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix == ".py" and path.is_file() and not path.is_symlink()]


def _add_files(assignment: Scenario, folder: Path) -> list[str]:
    """Add what the assignment gives to everybody; what was handed in under such a name is not taken."""
    told = []
    for name in grading_of(assignment).files:
        source, target = assignment.script.parent / name, folder / name
        if _clear(folder, target):
            told.append(f"{name} is part of the assignment: yours is not used")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=shutil.copyfile)  # contents, and no modes or attributes
        else:
            shutil.copyfile(source, target)
    return told


def _clear(folder: Path, target: Path) -> bool:
    """Remove what is in the way of a path below a folder; returns whether there was something."""
    if target.is_dir():
        shutil.rmtree(target)
        return True
    for path in (target, *target.parents):
        if path.is_file():
            path.unlink()
            return True
        if path == folder:
            break
    return False


def _left_out(phrases: list[str]) -> list[str]:
    more = f" (and {len(phrases) - _MOST_TOLD} more)" if len(phrases) > _MOST_TOLD else ""
    return [f"not taken: {join_words(phrases[:_MOST_TOLD])}{more}"] if phrases else []
