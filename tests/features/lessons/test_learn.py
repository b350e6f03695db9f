"""`lab learn`: asks, takes an answer, runs, says whether it held, keeps that, and says what comes next."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.engine import select
from lab.errors import EngineAbsent
from lab.features.lessons.question import read_prediction
from lab.record.read import find_record
from lab.report.style import Style
from tests.fake_engine import FakeEngine, exits, notes
from tests.golden import golden

LESSON = """\
name: one
learn: It gives three.
predict: {ask: What does it give?, choices: [two, '3', four], answer: {note: x, rank: 1}}
script: train.py
nodes: 2
expect: {notes: {x: rank + 2}}
"""
Lab = Callable[..., tuple[int, str, str]]


def no_local() -> None:
    raise EngineAbsent("no torch", "install it")


@pytest.fixture
def lab(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """Runs a verb with the words, and with what standard input, a pipe, holds."""
    engine = FakeEngine({rank: [notes("x", rank + 2), exits()] for rank in range(2)})
    monkeypatch.setitem(select.OPENERS, "docker", lambda: engine)
    monkeypatch.setitem(select.OPENERS, "local", no_local)
    monkeypatch.delenv("LAB_PROGRESS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "train.py").write_text('"""It gives three."""\n\nprint()  # three\n')
    (folder / "one.yaml").write_text(LESSON)
    (folder / "two.yaml").write_text(LESSON.replace("one", "two"))
    (folder / "learning-path.txt").write_text("# First\none.yaml\ntwo.yaml\n")

    def call(*words: str, stdin: str | None = None) -> tuple[int, str, str]:
        reading, writing = os.pipe()
        os.write(writing, (stdin or "").encode())
        os.close(writing)
        with os.fdopen(reading) as pipe:
            monkeypatch.setattr("sys.stdin", pipe)
            code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def as_json(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def test_a_lesson_asks_runs_and_says_whether_the_prediction_held(lab: Lab):
    code, out, err = lab("learn", "one", "--answer", "b", "--as", "anna")
    assert code == 0, err
    before, after = out.split("Predict, with 2 ranks: What does it give?")
    assert "three" not in before
    assert golden(1) in before
    assert golden(2) in after
    assert golden(3) in after
    assert after.endswith(golden(4))
    kept = read_prediction(find_record(None))
    assert kept is not None
    assert (kept.lesson, kept.prediction, kept.answer, kept.right) == ("one", "3", "3", True)


@pytest.mark.parametrize(("reply", "said", "right"), [("a\n", "two", False), ("3", "3", True), ("", "", None)])
def test_a_pipe_answers_with_a_line_or_not_at_all(lab: Lab, reply: str, said: str, right: bool | None):
    data = as_json(lab("learn", "one", "--json", stdin=reply))
    assert (data["prediction"], data["right"], data["answer"], data["next"]) == (said, right, "3", "two")
    assert (data["question"], data["choices"], data["insight"], data["verdict"]) == (
        golden(1), ["two", "3", "four"], "It gives three.", "passed",
    )  # fmt: skip


@pytest.mark.parametrize("words", [("--answer", "x"), ()])
def test_an_answer_that_nobody_can_mean_is_refused_before_the_run(lab: Lab, words: tuple[str, ...]):
    code, _, err = lab("learn", "one", *words, stdin="x\n")
    assert (code, Path(".lab").exists()) == (2, False)
    assert golden(1) in err


def test_the_path_fills_up(lab: Lab):
    assert golden(1) in lab("learn", "--as", "anna")[1]
    lab("learn", "--next", "--as", "anna", "--answer", "two")
    lab("learn", "--next", "--as", "anna", "--answer", "3")
    text = lab("learn", "--as", "anna")[1]
    assert "  ✘ one  ✔ two\n" in text
    assert text.endswith(golden(2))
    assert golden(3) in lab("learn", "--next", "--as", "anna")[1]
    assert [one["right"] for one in as_json(lab("learn", "--json", "--as", "anna"))["lessons"]] == [False, True]


def test_the_question_names_the_number_of_ranks_of_the_run(lab: Lab):
    assert golden(1) in lab("learn", "one", "--answer", "b", "--nproc-per-node", "2")[1]


def test_a_lecturer_sees_everybody(lab: Lab):
    for person, said in (("anna", "a"), ("ben", "b"), ("carla", "b")):
        lab("learn", "one", "--as", person, "--answer", said)
    data = as_json(lab("learn", "--summary", "--json"))
    assert [(one["person"], one["right"], one["wrong"]) for one in data["persons"]] == [
        ("anna", 0, 1),
        ("ben", 1, 0),
        ("carla", 1, 0),
    ]
    assert "ben     1     1      0" in lab("learn", "--summary")[1]
    assert [one["person"] for one in as_json(lab("learn", "--summary", "--as", "ben", "--json"))["persons"]] == ["ben"]


def test_a_run_that_does_not_come_out_is_not_held_against_anybody(lab: Lab):
    path = Path("scenarios/one.yaml")
    path.write_text(LESSON.replace("x: rank + 2", "x: rank + 2, y: 1"))
    code, out, _ = lab("learn", "one", "--answer", "b")
    assert code == 1
    assert golden(1) in out
    assert as_json(lab("learn", "--json"))["lessons"][0]["done"] is False


def test_what_cannot_be_kept_is_said_and_nothing_else_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_PROGRESS", "scenarios/one.yaml")
    code, out, _ = lab("learn", "one", "--answer", "b")
    assert code == 0
    assert golden(1) in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--as", "../x"], "'../x' is not a valid name"),
        (["one", "--next"], "--next cannot be combined with a lesson (one)"),
        (["one", "--summary"], "--summary cannot be combined with a lesson (one)"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(lab: Lab, words: list[str], sentence: str):
    code, _, err = lab("learn", *words)
    assert (code, sentence in err) == (2, True), err


def test_standard_input_that_cannot_be_waited_for_is_no_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr("sys.stdin", io.StringIO("b\n"))
    assert main(["learn", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"] == ""
    monkeypatch.setattr("sys.stdin", None)
    assert main(["learn", "one", "--json"]) == 0


def test_on_a_terminal_one_is_asked_until_understood_and_may_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    replies = iter(["nonsense", "b", "", "a", "q"])
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        return next(replies)

    monkeypatch.setattr("builtins.input", reply)
    monkeypatch.setattr("lab.features.lessons.verb._is_terminal", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("lab.features.lessons.verb.style_for", lambda _: Style(colour=False))
    monkeypatch.setattr("lab.report.live.style_for", lambda _: Style(colour=False))
    Path("scenarios/three.yaml").write_text(LESSON.replace("one", "three"))
    Path("scenarios/learning-path.txt").write_text("# First\none.yaml\ntwo.yaml\nthree.yaml\n")

    assert main(["learn", "--next", "--as", "anna"]) == 0

    question, on = "your prediction (a-c; Enter to skip): ", " (Enter to continue, q to end): "
    assert asked == [question, question, f"\nnext: two{on}", question, f"\nnext: three{on}"]
    out = capsys.readouterr().out
    assert golden(1) in out
    assert "✔ Your prediction is right: 3" in out
    assert golden(2) in out
