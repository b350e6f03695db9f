"""The folder that is shipped for one submission: what was handed in, and above it what the assignment gives to all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lab.errors import UsageError
from lab.features.grade.keys import grading_of
from lab.features.grade.submissions import Room, Submission, printable, unzip
from lab.spec.scenario import Scenario
from lab.words import listing

ROOM = Room(bytes=16 << 20, files=1000)
"""What one submission may hold."""
_PREFIX = "lab-grade-"
_MOST_TOLD = 3
_CHUNK_BYTES = 1 << 20
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
        told = [submission.told] if submission.told else []
        told += _put(submission.path, unpacked, folder, assignment.script.name)
        told += _add_files(assignment, folder)
        yield Staged(folder / assignment.script.name, tuple(told))


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder that names its process; those that dead processes left are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not _lives(int(pid)) and _is_ours(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:  # somebody else has just removed it
        return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _put(source: Path, unpacked: Path, folder: Path, name: str) -> list[str]:
    """Copy what was handed in into an empty folder; returns what there is to tell of it."""
    if source.suffix.lower() == ".py":
        _copy_file(source, folder / name, 0)
        return []
    told = []
    if source.is_file():
        told, source = _left_out(unzip(source, unpacked, ROOM)), unpacked
    top = _top(source, name)
    zips = [path for path in _visible(top) if path.suffix.lower() == ".zip" and not path.is_symlink()]
    if source is not unpacked and len(zips) == 1 and not _scripts(top):
        told += _left_out(unzip(zips[0], unpacked, ROOM))
        top = _top(unpacked, name)
    told += _left_out(_copy_tree(top, folder))
    if not (folder / name).is_file():
        told.append(_take_only_script(folder, name))
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
    return [folder / name for name in names if not _passed_over(name)]


def _passed_over(name: str) -> bool:
    return name.startswith(".") or name in _PASSED_OVER or name.endswith((".pyc", ".pyo"))


def _scripts(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix == ".py" and path.is_file() and not path.is_symlink()]


def _take_only_script(folder: Path, name: str) -> str:
    """Give the only script of a folder the name that it should have."""
    scripts = _scripts(folder)
    if len(scripts) != 1:
        there = listing(printable(path.name) for path in _visible(folder)[:10])
        raise UsageError(f"there is no {name} in it" + (f"; it holds {there}" if there else ": it is empty"))
    os.replace(scripts[0], folder / name)
    return f"{printable(scripts[0].name)} was taken for {name}: it is the only script"


def _copy_tree(top: Path, target: Path) -> list[str]:
    """Copy plain files and folders; returns what was left out, a phrase each."""
    left_out, waiting, count, size = list[str](), [Path()], 0, 0
    while waiting:
        where = waiting.pop()
        if len(where.parts) > ROOM.depth:
            raise UsageError(f"it holds folders that lie more than {ROOM.depth} deep")
        for path in _visible(top / where):
            below = where / path.name
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                os.mkdir(target / below)
                waiting.append(below)
            elif stat.S_ISREG(mode):
                size += _copy_file(path, target / below, size)
            else:
                left_out.append(f"{printable(str(below))} is a link or a device")
            count += 1
            ROOM.refuse_more(count, size)
    return left_out


def _copy_file(source: Path, target: Path, used_bytes: int) -> int:
    """Copy a plain file for which there is still room; returns its size."""
    try:
        with open(os.open(source, _FILE), "rb") as file, open(target, "xb") as copy:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise UsageError(f"{printable(source.name)} is a link or a device, not a file")
            ROOM.refuse_more(0, used_bytes + facts.st_size)
            while chunk := file.read(_CHUNK_BYTES):
                copy.write(chunk)
            return facts.st_size
    except OSError as error:
        raise UsageError(f"{printable(source.name)} cannot be read: {error.strerror or error}") from error


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
    for path in (target, *target.parents):
        if path == folder:
            return False
        if path.is_dir() and path == target:
            shutil.rmtree(path)
            return True
        if path.is_file():
            path.unlink()
            return True
    return False


def _left_out(phrases: list[str]) -> list[str]:
    more = f" (and {len(phrases) - _MOST_TOLD} more)" if len(phrases) > _MOST_TOLD else ""
    return [f"not taken: {listing(phrases[:_MOST_TOLD])}{more}"] if phrases else []
