"""Grades in a terminal, as CSV, and as pages."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from urllib.parse import quote

from lab.errors import RecordError
from lab.features.grade.grades import Grade, Grades
from lab.features.html.write import render_page, write_page
from lab.report.sanitize import sanitize_plain
from lab.report.style import VERDICTS, Style
from lab.report.table import table_text
from lab.report.verdict import ended_line
from lab.spec.kinds import make_slug
from lab.words import NONE, clip_end, format_count, format_duration

_LONGEST_NAME = 32
_LONGEST_REASON = 100
_FORMULA = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""A spreadsheet reads a cell as a formula if it begins with one of these, also in full width and after blanks."""


def progress_line(grade: Grade, done: int, of: int, style: Style) -> str:
    """Render one graded submission: `[ 3/61] ✔ passed  5 of 5  alice  72 ms`."""
    duration_or_reason = format_duration(grade.duration_s) if grade.verdict == "passed" else grade.reason
    return ended_line(done, of, grade.verdict, f"{points_text(grade)}  {grade.name}", duration_or_reason, style)


def points_text(grade: Grade) -> str:
    """Render `3.5 of 5`, or that the submission is not graded."""
    return f"{NONE if grade.points is None else f'{grade.points:g}'} of {grade.of:g}"


def grades_text(grades: Grades, style: Style) -> str:
    """Render a table of all grades, and a summary."""
    rows = [
        [
            clip_end(grade.name, _LONGEST_NAME),
            points_text(grade),
            *(f"{score.points:g}" if grade.is_graded else NONE for score in grade.scores),
            f"{VERDICTS[grade.verdict].sign} {grade.verdict}",
            clip_end(grade.reason, _LONGEST_REASON),
        ]
        for grade in grades.grades
    ]
    table = table_text(["name", "points", *grades.whats, "verdict", "reason"], rows, style)
    return f"{table}\n\n{summary_text(grades)}"


def summary_text(grades: Grades) -> str:
    """Render the number of submissions, their mean, and the isolation."""
    mean = NONE if grades.mean is None else f"{grades.mean:.3g} of {grades.of:g}"
    verdicts = ", ".join(f"{grades.verdicts[name]} {name}" for name in VERDICTS if grades.verdicts[name])
    count, duration = format_count(len(grades.grades), "submission"), format_duration(grades.duration_s)
    return f"{count}: {verdicts}; mean {mean}; {duration}\nisolation: {grades.isolation}"


def grades_csv(grades: Grades) -> str:
    """Render a row for each submission as CSV.

    A cell that a spreadsheet would read as a formula begins with an apostrophe: names and reasons are not trusted.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, ["name", "points", "of", *grades.whats, "verdict", "reason", "isolation", "record"]))
    for grade in grades.grades:
        points = "" if grade.points is None else f"{grade.points:g}"
        scores = [f"{score.points:g}" if grade.is_graded else "" for score in grade.scores]
        words = [grade.verdict, grade.reason, grades.isolation, str(grade.path or "")]
        writer.writerow(map(_cell, [grade.name, points, f"{grade.of:g}", *scores, *words]))
    return text.getvalue()


def _cell(text: str) -> str:
    text = sanitize_plain(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def write_grades(grades: Grades, folder: Path) -> list[Path]:
    """Write a page with the table and a page for each submission into a folder, which is created if necessary.

    Raises:
        RecordError: A file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    rows, pages = [], []
    for number, grade in enumerate(grades.grades, start=1):
        page = folder / f"{number:03}-{make_slug(grade.name)}.html"
        shown = {"grade": grade, "tone": VERDICTS[grade.verdict], "points": points_text(grade)}
        write_page(render_page("grade", "grade", {}, colours={}, grades=grades, **shown), page)
        pages.append(page)
        rows.append({**shown, "link": quote(page.name)})
    counts = [(VERDICTS[name], name, grades.verdicts[name]) for name in VERDICTS if grades.verdicts[name]]
    worst = next((tone for tone, name, _ in counts if name != "passed"), VERDICTS["passed"])
    index = folder / "index.html"
    shown = {"grades": grades, "rows": rows, "whats": grades.whats, "verdicts": counts, "worst": worst}
    write_page(render_page("grades", "grade", {}, colours={}, **shown), index)
    return [index, *pages]
