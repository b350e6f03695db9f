"""A lesson on a terminal: what is shown before the run, and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.lessons.lesson import (
    LessonResult,
    learn,
    lesson_result_text,
    list_code_lines,
    question_text,
    render_judgment,
)
from lab.features.lessons.question import Prediction
from lab.record.result import Expectation, RankResult, Result
from lab.report.style import Style
from lab.spec.load import load_scenario
from tests.golden import golden
from tests.traces import TraceMaker

PLAIN = Style(colour=False)
SCRIPT = '''#!/usr/bin/env python
"""The answer is 3."""

import torch  # because of 3


class Thing:
    """It gives 3."""

    size = "# no comment"


def give():
    # three times
    """3."""
    return 3


def empty():
    """3."""
'''


@pytest.fixture
def lesson_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "give.py").write_text(SCRIPT)
    (tmp_path / "give.yaml").write_text(
        "script: give.py\nnodes: 2\nlearn: It gives three.\npredict: {ask: What?, choices: [2, 3], answer: 3}\n"
    )
    return tmp_path / "give.yaml"


def result_with(*expectations: Expectation, verdict: str = "passed", **more: object) -> Result:
    known = {"reason": "all is well", "scenario": "s", "run": "run", "engine": "local", "cluster": "c"}
    return Result(verdict=verdict, expectations=expectations, **{**known, **more})  # type: ignore[arg-type]


def taken(result: Result, **prediction: object) -> LessonResult:
    told = Prediction(**{"insight": "It gives three.", **prediction})  # type: ignore[arg-type]
    return LessonResult(result=result, prediction=told, script=Path("/there/give.py"), next="")


def test_before_the_run_a_script_is_shown_without_what_it_says_of_itself(lesson_file: Path) -> None:
    shown = list_code_lines(load_scenario(lesson_file))
    assert [(number, line) for number, line in shown if line] == [
        (4, "import torch"),
        (7, "class Thing:"),
        (10, '    size = "# no comment"'),
        (13, "def give():"),
        (16, "    return 3"),
        (19, "def empty():"),
    ]


def test_what_python_cannot_read_is_shown_as_it_is(lesson_file: Path) -> None:
    lesson_file.with_name("give.py").write_text("def (:  # 3\n")
    assert list_code_lines(load_scenario(lesson_file)) == [(1, "def (:  # 3")]


def test_the_question_stands_before_the_insight(lesson_file: Path) -> None:
    text = question_text(learn(lesson_file, person="p"), PLAIN)
    assert text.startswith("give  2 nodes\n")
    assert text.endswith(golden(1))
    assert "It gives three" not in text


def test_a_lesson_about_calls_shows_what_ranks_called(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run")
    for rank in range(2):
        maker.call(rank, "all_reduce", rank, 5, [[1.0]], [[2.0]], red="SUM")
    stated = Expectation(what="calls", rank=0, expected="as stated", got="as stated: 1 call", met=True)

    text = lesson_result_text(taken(result_with(stated, path=maker.record().path)), PLAIN)

    assert golden(1) in text
    assert "all_reduce #1" in text
    assert text.endswith(golden(2))


def test_a_picture_that_would_fill_the_screen_is_named(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 12)
    for rank in range(12):
        maker.call(rank, "all_gather", rank, 15, [[1.0] * 8], [[1.0] * 8 for _ in range(12)])
    text = lesson_result_text(taken(result_with(path=maker.record().path)), PLAIN)
    assert golden(1) in text


def test_ranks_that_noted_the_same_share_a_row() -> None:
    ranks = tuple(RankResult(rank=rank, notes={"x": 1} | ({"z": "more"} if rank == 0 else {})) for rank in range(4))

    lines = lesson_result_text(taken(result_with(ranks=ranks)), PLAIN).splitlines()

    assert "0-3   x     1" in lines
    assert '0     z     "more"' in lines


@pytest.mark.parametrize(
    ("prediction", "verdict", "told"),
    [
        ({"prediction": "3", "answer": "3", "right": True}, "passed", ["✔ Your prediction is right: 3"]),
        ({"prediction": "2", "answer": "3", "right": False}, "passed", ["✘ You predicted: 2", "The answer: 3"]),
        ({"answer": "3"}, "passed", ["The answer: 3"]),
        ({"prediction": "what I think"}, "passed", ["You predicted: what I think"]),
        ({}, "passed", []),
        ({}, "failed", []),
    ],
)
def test_it_is_said_whether_a_prediction_held(prediction: dict[str, object], verdict: str, told: list[str]) -> None:
    result = result_with(verdict=verdict)
    assert render_judgment(Prediction(**prediction), result, PLAIN) == told  # type: ignore[arg-type]


def test_a_run_that_came_out_otherwise_judges_nothing() -> None:
    (told,) = render_judgment(Prediction(prediction="3"), result_with(verdict="failed"), PLAIN)
    assert told.startswith(golden(1))
