"""What was handed in: a folder, or a zip file, with a script, a folder or a zip file for each person."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from lab.errors import UsageError
from lab.features.grade.feedback import plain

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
