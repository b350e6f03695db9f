"""Grades in a terminal, as CSV, and as pages."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from lab.diagnosis.evidence import read_evidence
from lab.errors import RecordError
from lab.features.grade.grades import Grade, Grades
from lab.features.html.contents import cite_lines, read_sources
from lab.features.html.page import choose_steps
from lab.features.html.write import render_page, write_page
from lab.features.pictures.model import describe_operation, list_remarks, picture_of
from lab.features.pictures.svg import svg_of
from lab.record.read import Record
from lab.report.sanitize import sanitize_plain
from lab.report.style import VERDICTS, Style, table_text
from lab.report.verdict import ended_line
from lab.spec.kinds import make_slug
from lab.words import NONE, clip_end, format_count, format_duration

_LONGEST_NAME = 32
_LONGEST_REASON = 100
_FORMULA = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""A spreadsheet reads a cell as a formula if it begins with one of these, also in full width and after blanks."""


def progress_line(grade: Grade, done: int, of: int, style: Style, width: int = 0) -> str:
    """Render one graded submission: `[ 3/61] ✔ passed  5 of 5  alice  72 ms`; names have this width, if it is short."""
    duration_or_reason = format_duration(grade.duration_s) if grade.verdict == "passed" else grade.reason
    points, name = points_text(grade).rjust(_points_width(grade)), grade.name.ljust(min(width, _LONGEST_NAME))
    return ended_line(done, of, grade.verdict, f"{points}  {name}", duration_or_reason, style)


def points_text(grade: Grade) -> str:
    """Render `3.5 of 5`, or that the submission is not graded."""
    return f"{NONE if grade.points is None else f'{grade.points:g}'} of {grade.of:g}"


def _points_width(of: Grade | Grades) -> int:
    return max(len("points"), 2 * len(f"{of.of:g}") + len(" of "))


def grades_text(grades: Grades, style: Style) -> str:
    """Render a table of all grades, and a summary."""
    rows = [
        [
            clip_end(grade.name, _LONGEST_NAME),
            points_text(grade).rjust(_points_width(grades)),
            *((f"{score.points:g}" if grade.is_graded else NONE).rjust(len(score.what)) for score in grade.scores),
            f"{VERDICTS[grade.verdict].sign} {grade.verdict}",
            clip_end(grade.reason, _LONGEST_REASON),
        ]
        for grade in grades.grades
    ]
    header = ["name", "points".rjust(_points_width(grades)), *grades.whats, "verdict", "reason"]
    return f"{table_text(header, rows, style)}\n\n{summary_text(grades)}"


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


def explain_grade(grade: Grade) -> dict[str, Any]:
    """Return the lines of the script that the reason cites, and the picture of the step that went wrong, if any."""
    if grade.path is None or grade.verdict == "passed":
        return {}
    record = Record(path=grade.path)
    evidence, sources = read_evidence(record), read_sources(record)
    cited, result = {word.strip("();,.") for word in grade.reason.split()}, record.result()
    steps = [step for step in evidence.steps if any(call.source in cited for call in step.calls.values())]
    steps = choose_steps(steps or evidence.steps, 1)
    picture = picture_of(steps[0], (), len(result.ranks)) if steps else None
    excerpt = sources and (cite_lines(grade.reason, sources[0]) or cite_lines(grade.traceback, sources[0]))
    return {
        "excerpt": excerpt,
        "step": steps[0] if steps else None,
        "picture": Markup(svg_of(picture, heading=False)) if picture else "",
        "caption": " ".join([describe_operation(picture), *list_remarks(picture)]) if picture else "",
    }


def write_grades(grades: Grades, folder: Path) -> list[Path]:
    """Write a page with the table and a page for each submission into a folder, which is created if necessary.

    Raises:
        RecordError: A file cannot be written.
    """
    with RecordError.on_os_error(f"cannot make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    rows, pages = [], list[Path]()
    for number, grade in enumerate(grades.grades, start=1):
        page = folder / f"{number:03}-{make_slug(grade.name)}.html"
        shown = {"grade": grade, "tone": VERDICTS[grade.verdict], "points": points_text(grade)}
        explained: dict[str, Any] = {}
        with suppress(RecordError):  # a submission can note more than a view reads; others still have their pages
            explained = explain_grade(grade)
        write_page(render_page("grade", "grade", {}, grades=grades, **shown, **explained), page)
        pages.append(page)
        rows.append({**shown, "link": quote(page.name)})
    counts = [(VERDICTS[name], name, grades.verdicts[name]) for name in VERDICTS if grades.verdicts[name]]
    worst = next((tone for tone, name, _ in counts if name != "passed"), VERDICTS["passed"])
    index = folder / "index.html"
    shown = {"grades": grades, "rows": rows, "verdicts": counts, "worst": worst}
    write_page(render_page("grades", "grade", {}, **shown), index)
    return [index, *pages]
