"""Where one stands on the learning path, and where a class does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lab.features.lessons.path import LearningPath
from lab.features.lessons.progress import Attempt, Kept
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip, plural

_WIDTH = 100
_LONGEST_PREDICTION = 60
SIGNS = {True: ("✔", "green"), False: ("✘", "red"), None: ("•", "cyan")}
"""Predicted right, predicted wrong, done without either; with colours."""
UNDONE = "·"


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
    standing = kept.standing
    width = min(_WIDTH, style.width or _WIDTH)
    column = max(map(len, path.names), default=0) + 4
    parts = []
    for chapter, names in path.chapters.items():
        done = sum(name in standing for name in names)
        head = f"{style.paint(chapter, 'bold')}  {style.paint(f'{done} of {len(names)}', 'dim')}"
        parts.append(
            "\n".join([head, *_wrapped([_marked(name, standing.get(name), style) for name in names], column, width)])
        )
    mine = [name for name in path.names if name in standing]
    right, wrong = (sum(standing[name].right is held for name in mine) for held in (True, False))
    signs = (
        f"{SIGNS[True][0]} predicted right  {SIGNS[False][0]} predicted wrong  {SIGNS[None][0]} done  {UNDONE} to do"
    )
    lines = [style.paint(signs, "dim"), f"{kept.person}: {len(mine)} of {plural(len(path.names), 'lesson')} done"]
    if right + wrong:
        lines[-1] += f", {right} of {plural(right + wrong, 'prediction')} right"
    lines.append(f"next: lab learn {following}" if following else "That was all of them.")
    if following:
        lines.append(style.paint("`lab up --nodes 3` first, and lessons begin without a wait", "dim"))
    lines += [style.paint(kept.problem, "yellow")] if kept.problem else []
    return "\n".join([*parts, "", *lines])


def _marked(name: str, attempt: Attempt | None, style: Style) -> tuple[str, str]:
    """The name with its sign, plain and painted."""
    if attempt is None:
        return f"{UNDONE} {name}", f"{UNDONE} {name}"
    sign, colour = SIGNS[attempt.right]
    return f"{sign} {name}", style.paint(f"{sign} {name}", colour)


def _wrapped(items: Sequence[tuple[str, str]], column: int, width: int) -> list[str]:
    """Items beside each other in columns, as many as fit."""
    each = max(1, (width - 2) // column)
    rows = [items[at : at + each] for at in range(0, len(items), each)]
    return ["  " + "".join(painted + " " * (column - len(plain)) for plain, painted in row).rstrip() for row in rows]


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
    return {"persons": persons, "lessons": [_lesson_json(name, everybody) for name in _taken(path, everybody)]}


def _lesson_json(name: str, everybody: Sequence[Kept]) -> dict[str, Any]:
    made = [kept.standing[name] for kept in everybody if name in kept.standing]
    right, wrong = (sum(attempt.right is held for attempt in made) for held in (True, False))
    counts = Counter(attempt.prediction for attempt in made if attempt.prediction)
    predictions = [
        {"prediction": said, "count": count, "right": any(one.right for one in made if one.prediction == said)}
        for said, count in counts.most_common()
    ]
    return {"lesson": name, "done": len(made), "right": right, "wrong": wrong, "predictions": predictions}


def _taken(path: LearningPath, everybody: Sequence[Kept]) -> list[str]:
    """Lessons that somebody has taken: those of the path in its order, then others."""
    taken = {name for kept in everybody for name in kept.standing}
    return [*(name for name in path.names if name in taken), *sorted(taken - set(path.names))]


def summary_text(path: LearningPath, everybody: Sequence[Kept], style: Style) -> str:
    """A row for each person with a sign for each lesson, then a row for each lesson with what was predicted."""
    if not everybody:
        return "Nobody has taken a lesson yet."
    taken = _taken(path, everybody)
    begun = {
        chapter: names for chapter, names in path.chapters.items() if any(name in taken for name in names)
    }  # of the others there is nothing to see
    others = tuple(name for name in taken if name not in path.names)
    begun = {**begun, **({"others": others} if others else {})}
    rows = [
        [kept.person, str(len(kept.standing)), str(kept.count(True)), str(kept.count(False))]
        + ["".join(_sign(kept, name) for name in names).ljust(len(chapter)) for chapter, names in begun.items()]
        for kept in everybody
    ]
    whole = Style(colour=style.colour)
    parts = [table_text(("person", "done", "right", "wrong", *begun), rows, whole)]
    lessons = [_lesson_json(name, everybody) for name in taken]
    cells = [
        [one["lesson"], str(one["done"]), str(one["right"]), str(one["wrong"]), _predictions(one["predictions"])]
        for one in lessons
    ]
    parts.append(table_text(("lesson", "done", "right", "wrong", "predicted"), cells, whole))
    parts += [style.paint(kept.problem, "yellow") for kept in everybody if kept.problem]
    return "\n\n".join(parts)


def _sign(kept: Kept, name: str) -> str:
    attempt = kept.standing.get(name)
    return UNDONE if attempt is None else SIGNS[attempt.right][0]


def _predictions(said: Sequence[dict[str, Any]]) -> str:
    """`3 x [20.0] ✔, 1 x [10.0]`: the most frequent first."""
    return ", ".join(
        f"{one['count']} x {clip(one['prediction'], _LONGEST_PREDICTION)}{f' {SIGNS[True][0]}' if one['right'] else ''}"
        for one in said
    )
