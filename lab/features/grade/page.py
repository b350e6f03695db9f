"""Grades as pages: a table of all for whoever grades, and a page for each who handed something in, about that alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab.errors import RecordError
from lab.features.grade.grades import Grade, Grades
from lab.features.grade.view import points_text
from lab.features.html.write import render, save
from lab.report.style import VERDICTS
from lab.spec.kinds import slug

INDEX = "index.html"


@dataclass(frozen=True, kw_only=True)
class GradesReport:
    """Pages that were written."""

    path: Path
    """The table."""
    pages: tuple[Path, ...]
    """Of each submission, in their order."""


def write_grades(grades: Grades, folder: Path) -> GradesReport:
    """Write the pages into a folder, which is made where there is none.

    Raises:
        RecordError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    pages = [folder / _page_name(number, grade) for number, grade in enumerate(grades.grades, start=1)]
    for page, grade in zip(pages, grades.grades, strict=True):
        save(_page(grade, grades), page)
    index = folder / INDEX
    save(_index(grades, pages), index)
    return GradesReport(path=index, pages=tuple(pages))


def _page_name(number: int, grade: Grade) -> str:
    return f"{number:03}-{slug(grade.name)}.html"


def _page(grade: Grade, grades: Grades) -> bytes:
    tone = VERDICTS[grade.verdict]
    return _render("grade", grade=grade, grades=grades, tone=tone, points=points_text(grade))


def _index(grades: Grades, pages: list[Path]) -> bytes:
    rows = [
        {"grade": grade, "tone": VERDICTS[grade.verdict], "points": points_text(grade), "link": quote(page.name)}
        for grade, page in zip(grades.grades, pages, strict=True)
    ]
    whats = [score.what for score in grades.grades[0].scores] if grades.grades else []
    counts = [(VERDICTS[name], name, grades.verdicts[name]) for name in VERDICTS if grades.verdicts[name]]
    worst = next((tone for tone, name, _ in counts if name != "passed"), VERDICTS["passed"])
    return _render("grades", grades=grades, rows=rows, whats=whats, verdicts=counts, worst=worst)


def _render(template: str, **shown: Any) -> bytes:
    return render(template, "grade", {}, colours={}, **shown)
