"""Which lessons a person has taken and what they predicted: a file for each person, a line for each lesson taken.

Lines are only ever added, each at once, so that nothing that was kept can be lost by what comes later.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.engine.ownership import state_folder
from lab.errors import LabError, UsageError
from lab.node.messages.typed import Misfit, read

FOLDER_VARIABLE = "LAB_PROGRESS"
"""Environment variable: the folder where progress is kept, such as one that a class on one machine shares."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SUFFIX = ".jsonl"
_MOST_BYTES = 16 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A lesson that was taken."""

    lesson: str
    prediction: str = ""
    """Empty where nothing was predicted."""
    right: bool | None = None
    """Whether the prediction held; None where there is none, or nothing to hold it against."""
    run: str = ""
    """Name of the run."""
    time: float = 0.0
    """Unix time of its end."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a person."""

    person: str
    attempts: tuple[Attempt, ...] = ()
    """In the order in which they were made."""
    problem: str = ""
    """What of it cannot be read, a sentence."""

    @property
    def standing(self) -> dict[str, Attempt]:
        """By lesson the attempt that counts: the first with a prediction, since after it one has been told."""
        found: dict[str, Attempt] = {}
        for attempt in self.attempts:
            if attempt.lesson not in found or (attempt.prediction and not found[attempt.lesson].prediction):
                found[attempt.lesson] = attempt
        return found

    def count(self, right: bool | None) -> int:
        """How many lessons were predicted right, wrong, or neither."""
        return sum(attempt.right is right for attempt in self.standing.values())


def progress_folder() -> Path:
    """Where progress is kept."""
    shared = os.environ.get(FOLDER_VARIABLE)
    return Path(shared) if shared else state_folder() / "learn"


def person_of(name: str | None) -> str:
    """The name under which progress is kept; by default that of the user.

    Raises:
        UsageError: it cannot name a file.
    """
    if name is None:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = f"uid{os.getuid()}"
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).lstrip(".-")[:63] or f"uid{os.getuid()}"
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a person", "use up to 63 letters, digits, '.', '-' and '_', the first no '.' or '-'"
        )
    return name


def keep(person: str, attempt: Attempt) -> None:
    """Add a lesson to what is kept of a person.

    Raises:
        LabError: it cannot be written.
    """
    path = progress_folder() / f"{person}{_SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # a line that was not written to its end
            os.write(fd, b"\n" * cut + json.dumps(asdict(attempt)).encode() + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise LabError(
            f"your progress cannot be kept in {path}: {error.strerror}",
            f"set {FOLDER_VARIABLE} to a folder that you can write",
        ) from error


def kept_of(person: str) -> Kept:
    """What is kept of a person; lines that are damaged are left out and counted."""
    path = progress_folder() / f"{person}{_SUFFIX}"
    try:
        text = _text(path)
    except FileNotFoundError:
        return Kept(person=person)
    except OSError as error:
        return Kept(person=person, problem=f"{path} cannot be read: {error.strerror}")
    attempts, damaged = [], 0
    for line in filter(str.strip, text.split("\n")):
        try:
            attempts.append(read(Attempt, json.loads(line)))
        except (Misfit, ValueError, RecursionError):
            damaged += 1
    lines = "1 line" if damaged == 1 else f"{damaged} lines"
    problem = f"{path}: {lines} cannot be read; the rest counts, and nothing in it is changed" if damaged else ""
    return Kept(person=person, attempts=tuple(attempts), problem=problem)


def kept_of_all() -> list[Kept]:
    """What is kept of everybody, in the order of their names."""
    return [kept_of(person) for person in sorted(_persons(progress_folder()))]


def _persons(folder: Path) -> Iterable[str]:
    try:
        names = [path.name.removesuffix(_SUFFIX) for path in folder.iterdir() if path.name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LabError(f"{folder} cannot be read: {error.strerror}") from error
    return [name for name in names if _NAME.fullmatch(name)]


def _text(path: Path) -> str:
    """The text of a regular file: not of what waits for a writer, nor of what somebody's link leads to."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "it is no regular file")
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
