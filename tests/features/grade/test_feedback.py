"""What is shown of a grade is harmless wherever it is shown, and names nobody else."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

from lab.diagnosis.facts import RunFacts
from lab.features.grade.grades import Grade, Grades, grade_run, grade_without_run
from lab.features.grade.keys import Grading
from lab.features.grade.view import grades_csv, grades_text, progress_line, write_grades
from lab.record.layout import PLAN
from lab.record.result import Culprit, Expectation, RankResult, Result
from lab.report.style import Style
from lab.spec.scenario import Expect, Scenario
from tests.traces import TraceMaker

PLAIN = Style(colour=False)
ASSIGNMENT = Scenario(
    name="ring",
    script=Path("ring.py"),
    expect=Expect(notes={"sum": 3}),
    extra={"grade": Grading(points={"note sum": 2})},
)
EVIL = "</script><img src=x onerror=alert(1)>\x1b]0;owned\x07\x1b[31m\u202e"


def ran(name: str, *, right: bool = True, reason: str = "all 2 ranks ended as expected"):
    expectations = (
        Expectation(what="exit", rank=0, expected=0, got=0, met=True),
        Expectation(what="note sum", rank=0, expected=3, got=3 if right else EVIL, met=right),
    )
    result = Result(
        verdict="passed" if right else "failed",
        reason=reason,
        ranks=(RankResult(rank=0, exit_code=0),),
        expectations=expectations,
        culprit=None if right else Culprit(rank=0, traceback=f"Traceback\n{EVIL}\n" * 40),
    )
    return grade_run(name, result, RunFacts(ranks=[]), ASSIGNMENT)


GRADES = Grades(
    scenario="ring",
    engine="docker",
    isolation=Grades.UNTRUSTED,
    grades=(
        ran("alice"),
        ran("=cmd|' /C calc'!A0", right=False, reason=EVIL),
        grade_without_run("carol", f"there is no ring.py in it; it holds {EVIL}", ASSIGNMENT, "failed"),
        grade_without_run("dave", "the nodes were lost", ASSIGNMENT, "error"),
    ),
)


def test_points_verdicts_and_their_mean_are_those_of_who_is_graded() -> None:
    assert [grade.points for grade in GRADES.grades] == [3, 0, 0, None]
    assert GRADES.of == 3
    assert GRADES.mean == 1
    data = json.loads(json.dumps(GRADES.to_json()))
    assert [grade["points"] for grade in data["grades"]] == [3, 0, 0, None]
    assert data["grades"][1]["scores"][1]["what"] == "note sum"
    assert data["isolation"] == "strict cluster"


def test_a_name_is_one_line_of_plain_text() -> None:
    for grade in (ran("a\n\x1b[2J\u202eb"), grade_without_run("a\n\x1b[2J\u202eb", "", ASSIGNMENT, "failed")):
        assert grade.name == "a \\x1b[2J\\u202eb"


def test_no_text_of_a_stranger_acts_on_a_terminal() -> None:
    shown = grades_text(GRADES, PLAIN) + "".join(progress_line(grade, 1, 4, PLAIN) for grade in GRADES.grades)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b]0;owned\\x07" in shown


def test_a_spreadsheet_takes_no_cell_for_a_formula() -> None:
    rows = list(csv.reader(io.StringIO(grades_csv(GRADES))))
    assert rows[0] == ["name", "points", "of", "exit", "note sum", "verdict", "reason", "isolation", "record"]
    assert [row[:5] for row in rows[1:]] == [
        ["alice", "3", "3", "1", "2"],
        ["'=cmd|' /C calc'!A0", "0", "3", "0", "0"],
        ["carol", "0", "3", "0", "0"],
        ["dave", "", "3", "", ""],
    ]
    assert all("\n" not in cell for row in rows for cell in row)


def test_each_has_a_page_about_that_submission_alone_in_which_nothing_is_markup(tmp_path: Path) -> None:
    index, *pages = write_grades(GRADES, tmp_path / "pages")
    assert [path.name for path in pages] == [
        "001-alice.html",
        "002-cmd-c-calc-a0.html",
        "003-carol.html",
        "004-dave.html",
    ]
    for number, page in enumerate((*pages, index)):
        html = page.read_text()
        assert "<img" not in html
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "default-src &#39;none&#39;" in html
        for other, grade in enumerate(GRADES.grades[:1]):
            assert (f">{grade.name}<" in html) == (other == number or page == index)
    assert pages[1].read_text().count("Traceback\n") == 10, "of a long one the end"
    assert 'href="002-cmd-c-calc-a0.html"' in index.read_text()


def test_a_page_shows_the_line_of_the_script_and_the_picture_of_the_step_that_failed(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    index = made.call(0, "all_reduce", 1, None, [[1.0]], at="ring.py:5")
    made.line(0, "end", 5000, i=index, err="[/w/gloo/pair.cc:5] Connection closed by peer [::1]:7")
    record = made.record()
    plan = json.loads((record.path / PLAN).read_text()) if (record.path / PLAN).exists() else {}
    (record.path / PLAN).write_text(json.dumps({**plan, "script": "ring.py"}))
    lines = [f"line_{number} = '<b>'" for number in range(1, 20)]
    (record.path / "ring.py").write_text("\n".join(lines))
    reason = "rank 1 (node1) raised ValueError: no at ring.py:7"
    page = page_of(replace(ran("bob", right=False, reason=reason), path=record.path), tmp_path / "pages")

    assert page.index(reason) < page.index('class="line here"') < page.index("<svg") < page.index("What was expected")
    assert [number for number in range(1, 20) if f"line_{number} " in re.sub("<[^>]*>", "", page)] == [*range(4, 11)]
    assert "Connection closed by peer" in page
    assert "pair.cc" not in page
    assert "<b>'" not in page


def test_a_submission_that_passed_or_has_no_record_has_no_excerpt(tmp_path: Path) -> None:
    for grade in (replace(ran("alice"), path=tmp_path), ran("bob", right=False)):
        assert 'class="line' not in page_of(grade, tmp_path / grade.name)


def page_of(grade: Grade, folder: Path) -> str:
    (_, page) = write_grades(replace(GRADES, grades=(grade,)), folder)
    return page.read_text(encoding="utf-8")


def test_numbers_of_a_table_are_aligned_at_their_right_and_names_of_progress_lines_are_padded() -> None:
    head, first, *_ = grades_text(GRADES, PLAIN).splitlines()
    assert head.index("points") + len("points") == first.index("3 of 3") + len("3 of 3")
    assert first[head.index("exit") + len("exit") - 1] == "1"
    starts = [progress_line(replace(GRADES.grades[0], name=name), 1, 4, PLAIN, 9) for name in ("al", "christine")]
    assert len({line.index("passed") for line in starts}) == 1
    assert starts[0].index("0 s") == starts[1].index("0 s")
