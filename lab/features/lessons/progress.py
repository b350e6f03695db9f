"""The learning path, which of its lessons a person has taken, and what they predicted."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.engine.ownership import state_folder
from lab.errors import LabError, RecordError, UsageError
from lab.features.lessons.verb_scenarios import PATH_FILE, read_path
from lab.frozen import Frozen
from lab.node.messages.typed import Misfit, read_typed
from lab.record.record_files import is_file, open_file, parse_line, read_beginning, read_lines
from lab.report.style import Style
from lab.report.table import table_text
from lab.spec.load import OWN_FOLDER, files_below, library_folder
from lab.words import clip_end, format_count


class LearningPath(Frozen):
    """The lessons of a folder, in the order in which to take them."""

    chapters: Mapping[str, tuple[str, ...]]
    """Names of the lessons of each chapter."""

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return [name for names in self.chapters.values() for name in names]

    def place(self, name: str) -> str:
        """`lesson 3 of 92, First steps`; empty for a lesson that is not on the path."""
        if name not in self.names:
            return ""
        chapter = next(chapter for chapter, names in self.chapters.items() if name in names)
        return f"lesson {self.names.index(name) + 1} of {len(self.names)}, {chapter}"

    def next_after(self, name: str, done: Collection[str]) -> str:
        """The first lesson behind this one that is not done, or else the first of all; empty when all are done."""
        names = self.names
        at = names.index(name) + 1 if name in names else 0
        return next((each for each in (*names[at:], *names[:at]) if each not in done and each != name), "")


def learning_path(folder: Path | None = None) -> LearningPath:
    """The path of a folder; by default of the current folder's scenarios if they have one, else of the lab's lessons.

    Raises:
        ScenarioError: the file that states the path is not valid.
    """
    if folder is None:
        folder = OWN_FOLDER if (OWN_FOLDER / PATH_FILE).is_file() else library_folder()
    stated = read_path(folder) or {"Lessons": [str(file.relative_to(folder)) for file in files_below(folder)]}
    chapters = {
        chapter: tuple(name_of(folder / name) for name in names if (folder / name).is_file())
        for chapter, names in stated.items()
    }
    return LearningPath(chapters=chapters)


def name_of(file: Path) -> str:
    """What a lesson is called on the path and in what is kept: the name of its file."""
    return file.stem.replace("-", "_")


FOLDER_VARIABLE = "LAB_PROGRESS"
"""Environment variable: the folder where progress is kept, such as one that a class on one machine shares."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SUFFIX = ".jsonl"
_MOST_BYTES = 16 * 1024**2


@dataclass(frozen=True)
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


class Kept(Frozen):
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
        raise UsageError(f"{name!r} cannot name a person", "use at most 63 letters, digits and _.-, not . or - first")
    return name


def keep(person: str, attempt: Attempt) -> None:
    """Add a lesson to what is kept of a person.

    Raises:
        LabError: it cannot be written.
    """
    folder, name = progress_folder(), f"{person}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        cut = is_file(folder, name) and not read_beginning(folder, name, _MOST_BYTES).endswith("\n")
        with open_file(folder, name, append=True) as file:
            file.write(b"\n" * cut + json.dumps(asdict(attempt)).encode() + b"\n")
    except (OSError, RecordError) as error:
        raise LabError(
            f"your progress cannot be kept in {folder / name}: {_why(error)}",
            f"set {FOLDER_VARIABLE} to a folder that you can write",
        ) from error


def kept_of(person: str) -> Kept:
    """What is kept of a person; lines that are damaged are left out and counted."""
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
        return Kept(person=person)
    except (OSError, RecordError) as error:
        return Kept(person=person, problem=f"{folder / name} cannot be read: {_why(error)}")
    lines = "1 line" if damaged == 1 else f"{damaged} lines"
    problem = f"{folder / name}: {lines} cannot be read; the rest counts, and nothing in it is changed"
    return Kept(person=person, attempts=tuple(attempts), problem=problem if damaged else "")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def kept_of_all() -> list[Kept]:
    """What is kept of everybody, in the order of their names.

    Raises:
        LabError: the folder of all progress cannot be read.
    """
    folder = progress_folder()
    try:
        names = sorted(name.removesuffix(_SUFFIX) for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LabError(f"{folder} cannot be read: {error.strerror}") from error
    return [kept_of(name) for name in names if _NAME.fullmatch(name)]


_WIDTH = 100
_LONGEST_PREDICTION = 60
SIGNS = {True: ("✔", "green"), False: ("✘", "red"), None: ("•", "cyan")}
"""Predicted right, predicted wrong, done without either; with colours."""
UNDONE = "·"
_MEANINGS = ("predicted right", "predicted wrong", "done", "to do")


def path_json(path: LearningPath, kept: Kept, following: str) -> dict[str, Any]:
    """The path with what is done, as plain data."""
    standing = kept.standing
    lessons = [
        {"lesson": name, "chapter": chapter, "done": name in standing, **_facts(standing.get(name))}
        for chapter, names in path.chapters.items()
        for name in names
    ]
    return {"person": kept.person, "lessons": lessons, "next": following, "problem": kept.problem}


def _facts(attempt: Attempt | None) -> dict[str, Any]:
    made = attempt or Attempt(lesson="")
    return {"prediction": made.prediction, "right": made.right, "run": made.run, "time": made.time or None}


def path_text(path: LearningPath, kept: Kept, following: str, style: Style) -> str:
    """The path with what is done, and what comes next."""
    standing, parts = kept.standing, []
    column = max(map(len, path.names), default=0) + 4
    each = max(1, (min(_WIDTH, style.width or _WIDTH) - 2) // column)
    for chapter, names in path.chapters.items():
        done = sum(name in standing for name in names)
        parts.append(f"{style.paint(chapter, 'bold')}  {style.paint(f'{done} of {len(names)}', 'dim')}")
        signs = (SIGNS[standing[name].right][0] if name in standing else UNDONE for name in names)
        cells = [f"{sign} {name}".ljust(column) for sign, name in zip(signs, names, strict=True)]
        parts += ["  " + "".join(cells[at : at + each]).rstrip() for at in range(0, len(cells), each)]
    for sign, colour in SIGNS.values():
        parts = [part.replace(sign, style.paint(sign, colour)) for part in parts]
    mine = [name for name in path.names if name in standing]
    right, wrong = (sum(standing[name].right is held for name in mine) for held in (True, False))
    meanings = zip((*(sign for sign, _ in SIGNS.values()), UNDONE), _MEANINGS, strict=True)
    legend = "  ".join(f"{sign} {text}" for sign, text in meanings)
    lines = [
        style.paint(legend, "dim"),
        f"{kept.person}: {len(mine)} of {format_count(len(path.names), 'lesson')} done",
    ]
    if right + wrong:
        lines[-1] += f", {right} of {format_count(right + wrong, 'prediction')} right"
    lines.append(f"next: lab learn {following}" if following else "That was all of them.")
    if following:
        lines.append(style.paint("`lab up --nodes 3` first, and lessons begin without a wait", "dim"))
    lines += [style.paint(kept.problem, "yellow")] if kept.problem else []
    return "\n".join([*parts, "", *lines])


def summary_json(path: LearningPath, everybody: Sequence[Kept]) -> dict[str, Any]:
    """Everybody's lessons, and what was predicted in each, as plain data."""
    persons = [
        {
            "person": kept.person,
            "done": len(kept.standing),
            "right": kept.count(True),
            "wrong": kept.count(False),
            "lessons": {name: _facts(attempt) for name, attempt in kept.standing.items()},
            "problem": kept.problem,
        }
        for kept in everybody
    ]
    begun = {name for kept in everybody for name in kept.standing}
    lessons = []
    for name in [*(name for name in path.names if name in begun), *sorted(begun - set(path.names))]:
        made = [kept.standing[name] for kept in everybody if name in kept.standing]
        right, wrong = (sum(attempt.right is held for attempt in made) for held in (True, False))
        counts = Counter(attempt.prediction for attempt in made if attempt.prediction)
        predictions = [
            {"prediction": text, "count": count, "right": any(one.right for one in made if one.prediction == text)}
            for text, count in counts.most_common()
        ]
        lessons.append({"lesson": name, "done": len(made), "right": right, "wrong": wrong, "predictions": predictions})
    return {"persons": persons, "lessons": lessons}


def summary_text(path: LearningPath, everybody: Sequence[Kept], style: Style) -> str:
    """A row for each person with a sign for each lesson, then a row for each lesson with what was predicted."""
    if not everybody:
        return "Nobody has taken a lesson yet."
    data, numbers = summary_json(path, everybody), ("done", "right", "wrong")
    names = [lesson["lesson"] for lesson in data["lessons"]]
    chapters = {title: of for title, of in path.chapters.items() if not {*of}.isdisjoint(names)}
    if others := tuple(name for name in names if name not in path.names):
        chapters["others"] = others
    people, lessons = [], []
    for person in data["persons"]:
        made = person["lessons"]
        signs = (
            "".join(SIGNS[made[name]["right"]][0] if name in made else UNDONE for name in of).ljust(len(title))
            for title, of in chapters.items()
        )
        people.append([person["person"], *(str(person[number]) for number in numbers), *signs])
    for lesson in data["lessons"]:  # `3 x [20.0] ✔, 1 x [10.0]`: the most frequent first
        predicted = ", ".join(
            f"{one['count']} x {clip_end(one['prediction'], _LONGEST_PREDICTION)}" + f" {SIGNS[True][0]}" * one["right"]
            for one in lesson["predictions"]
        )
        lessons.append([lesson["lesson"], *(str(lesson[number]) for number in numbers), predicted])
    whole = Style(colour=style.colour)
    parts = [table_text(("person", *numbers, *chapters), people, whole)]
    parts.append(table_text(("lesson", *numbers, "predicted"), lessons, whole))
    parts += [style.paint(kept.problem, "yellow") for kept in everybody if kept.problem]
    return "\n\n".join(parts)
