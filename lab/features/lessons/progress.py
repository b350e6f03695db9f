"""The learning path, which of its lessons a person has done, and what they predicted."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.engine.ownership import state_folder
from lab.errors import LabError, RecordError, UsageError
from lab.features.lessons.verb_scenarios import PATH_FILE, read_chapters
from lab.frozen import Frozen
from lab.node.messages.typed import Misfit, read_typed
from lab.record.record_files import is_file, open_file, parse_line, read_beginning, read_lines
from lab.report.style import Style, table_text
from lab.spec.load import OWN_FOLDER, files_below, library_folder
from lab.words import format_count


class LearningPath(Frozen):
    """The lessons of a folder, in the order in which a person does them."""

    chapters: Mapping[str, tuple[str, ...]]
    """Names of the lessons of each chapter."""

    @property
    def names(self) -> list[str]:
        """Return the names of all lessons, in order."""
        return [name for names in self.chapters.values() for name in names]

    def describe_position(self, name: str) -> str:
        """Return `lesson 3 of 92, First steps`; empty for a lesson that is not on the path."""
        if name not in self.names:
            return ""
        chapter = next(chapter for chapter, names in self.chapters.items() if name in names)
        return f"lesson {self.names.index(name) + 1} of {len(self.names)}, {chapter}"

    def next_after(self, name: str, done: Collection[str]) -> str:
        """Return the first lesson after this one that is not done, or else the first of all; empty if all are done."""
        names = self.names
        at = names.index(name) + 1 if name in names else 0
        return next((each for each in (*names[at:], *names[:at]) if each not in done and each != name), "")


def load_learning_path() -> LearningPath:
    """Read the path of the current folder's scenarios if they have one, else that of the lab's lessons.

    Raises:
        ScenarioError: the path's file is not valid.
    """
    folder = OWN_FOLDER if (OWN_FOLDER / PATH_FILE).is_file() else library_folder()
    stated = read_chapters(folder) or {"Lessons": [str(file.relative_to(folder)) for file in files_below(folder)]}
    chapters = {
        chapter: tuple(lesson_name(folder / name) for name in names if (folder / name).is_file())
        for chapter, names in stated.items()
    }
    return LearningPath(chapters=chapters)


def lesson_name(file: Path) -> str:
    """Return the name of a lesson on the path and in the progress file: the name of its file."""
    return file.stem.replace("-", "_")


FOLDER_VARIABLE = "LAB_PROGRESS"
"""Environment variable: the folder of the progress files, for example one that a class on one machine shares."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SUFFIX = ".jsonl"
_MOST_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class Attempt:
    """One time that a person did a lesson."""

    lesson: str
    prediction: str = ""
    """Empty if the person predicted nothing."""
    right: bool | None = None
    """Whether the prediction was right; None without a prediction, or if nothing can be compared with it."""
    run: str = ""
    """Name of the run."""
    time: float = 0.0
    """Unix time of the end of the run, in seconds."""


class Progress(Frozen):
    """The lessons that a person has done."""

    person: str
    attempts: tuple[Attempt, ...] = ()
    """In the order in which they were made."""
    problem: str = ""
    """A sentence about unreadable parts; empty if nothing is damaged."""

    @property
    def counted_attempts(self) -> dict[str, Attempt]:
        """The attempt that counts, by lesson: the first with a prediction, because a run reveals the answer."""
        counted: dict[str, Attempt] = {}
        for attempt in self.attempts:
            if attempt.lesson not in counted or (attempt.prediction and not counted[attempt.lesson].prediction):
                counted[attempt.lesson] = attempt
        return counted

    def count(self, is_right: bool | None) -> int:
        """Count the lessons that were predicted right (True), wrong (False), or neither (None)."""
        return sum(attempt.right is is_right for attempt in self.counted_attempts.values())


def progress_folder() -> Path:
    """Return the folder of the progress files."""
    shared = os.environ.get(FOLDER_VARIABLE)
    return Path(shared) if shared else state_folder() / "learn"


def resolve_person(name: str | None) -> str:
    """Return the name under which progress is stored; by default the name of the user.

    Raises:
        UsageError: The name cannot be the name of a file.
    """
    if name is None:
        name = ""
        with suppress(KeyError, OSError):
            name = getpass.getuser()
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).lstrip(".-")[:63] or f"uid{os.getuid()}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name", "use letters, digits, _, ., and -; no . or - at the start")
    return name


def record_attempt(person: str, attempt: Attempt) -> None:
    """Append an attempt to a person's progress file.

    Raises:
        LabError: The file cannot be written.
    """
    folder, name = progress_folder(), f"{person}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_cut = is_file(folder, name) and not read_beginning(folder, name, _MOST_BYTES).endswith("\n")
        with open_file(folder, name, append=True) as file:
            file.write(b"\n" * is_cut + json.dumps(asdict(attempt)).encode() + b"\n")
    except (OSError, RecordError) as error:
        hint = f"set {FOLDER_VARIABLE} to a folder that you can write"
        raise LabError(f"cannot write your progress to {folder / name}: {_describe_error(error)}", hint) from error


def read_progress(person: str) -> Progress:
    """Read a person's progress file; damaged lines are left out and counted in `problem`."""
    folder, name = progress_folder(), f"{person}{_SUFFIX}"
    attempts, damaged = [], 0
    try:
        with open_file(folder, name, _MOST_BYTES) as file:
            for line in filter(bytes.strip, read_lines(file)):
                try:
                    attempts.append(read_typed(Attempt, parse_line(line)))
                except Misfit:
                    damaged += 1
    except FileNotFoundError:
        return Progress(person=person)
    except (OSError, RecordError) as error:
        return Progress(person=person, problem=f"cannot read {folder / name}: {_describe_error(error)}")
    lines = "1 line" if damaged == 1 else f"{damaged} lines"
    problem = f"{folder / name}: {lines} cannot be read; the rest counts, and the file stays as it is"
    return Progress(person=person, attempts=tuple(attempts), problem=problem if damaged else "")


def _describe_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_all_progress() -> list[Progress]:
    """Read the progress of all persons, in the order of their names.

    Raises:
        LabError: The folder cannot be read.
    """
    folder, files = progress_folder(), list[str]()
    with LabError.on_os_error(f"cannot read {folder}", "check its permissions"), suppress(FileNotFoundError):
        files = os.listdir(folder)
    names = [file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX)]
    return [read_progress(name) for name in sorted(names) if _NAME.fullmatch(name)]


_WIDTH = 100
SIGNS = {True: ("✔", "green"), False: ("✘", "red"), None: ("•", "cyan")}
"""The sign and the color of a lesson that was predicted right, predicted wrong, or done without either."""
UNDONE = "·"
_LEGEND = "✔ predicted right  ✘ predicted wrong  • done  · to do"


def path_json(path: LearningPath, progress: Progress, next_lesson: str) -> dict[str, Any]:
    """Return the path and the completed lessons, as plain data."""
    counted = progress.counted_attempts
    lessons = [
        {"lesson": name, "chapter": chapter, "done": name in counted, **_attempt_json(counted.get(name))}
        for chapter, names in path.chapters.items()
        for name in names
    ]
    return {"person": progress.person, "lessons": lessons, "next": next_lesson, "problem": progress.problem}


def _attempt_json(attempt: Attempt | None) -> dict[str, Any]:
    shown = attempt or Attempt(lesson="")
    return {"prediction": shown.prediction, "right": shown.right, "run": shown.run, "time": shown.time or None}


def path_text(path: LearningPath, progress: Progress, next_lesson: str, style: Style) -> str:
    """Render the path, the completed lessons, and the next lesson."""
    counted, parts = progress.counted_attempts, []
    column = max(map(len, path.names), default=0) + 4
    per_line = max(1, (min(_WIDTH, style.width or _WIDTH) - 2) // column)
    for chapter, names in path.chapters.items():
        done = sum(name in counted for name in names)
        parts.append(f"{style.paint(chapter, 'bold')}  {style.paint(f'{done} of {len(names)}', 'dim')}")
        signs = (SIGNS[counted[name].right][0] if name in counted else UNDONE for name in names)
        cells = [f"{sign} {name}".ljust(column) for sign, name in zip(signs, names, strict=True)]
        parts += ["  " + "".join(cells[at : at + per_line]).rstrip() for at in range(0, len(cells), per_line)]
    for sign, colour in SIGNS.values():
        parts = [part.replace(sign, style.paint(sign, colour)) for part in parts]
    done_lessons = [name for name in path.names if name in counted]
    hits, misses = (sum(counted[name].right is held for name in done_lessons) for held in (True, False))
    count = f"{progress.person}: {len(done_lessons)} of {format_count(len(path.names), 'lesson')} done"
    if hits + misses:
        count += f", {hits} of {format_count(hits + misses, 'prediction')} right"
    lines = [style.paint(_LEGEND, "dim"), count]
    lines.append(f"next: lab learn {next_lesson}" if next_lesson else "You have done all lessons.")
    lines += [style.paint(progress.problem, "yellow")] if progress.problem else []
    return "\n".join([*parts, "", *lines])


def summary_json(all_progress: Sequence[Progress]) -> dict[str, Any]:
    """Return the lessons of all persons, with their predictions, as plain data."""
    persons = [
        {
            "person": progress.person,
            "done": len(progress.counted_attempts),
            "right": progress.count(True),
            "wrong": progress.count(False),
            "lessons": {name: _attempt_json(made) for name, made in progress.counted_attempts.items()},
            "problem": progress.problem,
        }
        for progress in all_progress
    ]
    return {"persons": persons}


def summary_text(all_progress: Sequence[Progress], style: Style) -> str:
    """Render a row for each person."""
    if not all_progress:
        return "No one has done a lesson yet."
    columns = ("person", "done", "right", "wrong")
    rows = [[str(person[column]) for column in columns] for person in summary_json(all_progress)["persons"]]
    problems = [style.paint(progress.problem, "yellow") for progress in all_progress if progress.problem]
    return "\n\n".join([table_text(columns, rows, style), *problems])
