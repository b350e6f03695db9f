"""Where one stands on the path, and where a class does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.lessons.progress import (
    Attempt,
    LearningPath,
    Progress,
    load_learning_path,
    path_json,
    path_text,
    summary_json,
    summary_text,
)
from lab.report.style import Style
from tests.golden import golden

PATH = LearningPath(chapters={"First": ("a", "b"), "Then": ("c", "d")})
PLAIN = Style(colour=False)


def kept(person: str, **right: bool | None) -> Progress:
    said = {True: "yes", False: "no", None: ""}
    made = (Attempt(lesson=name, prediction=said[held], right=held) for name, held in right.items())
    return Progress(person=person, attempts=tuple(made))


def test_the_path_shows_what_is_done_and_what_comes_next() -> None:
    text = path_text(PATH, kept("anna", a=True, b=None, c=False), "d", PLAIN)
    assert text.splitlines() == [
        "First  2 of 2",
        "  ✔ a  • b",
        "Then  1 of 2",
        "  ✘ c  · d",
        "",
        golden(1),
        golden(2),
        golden(3),
    ]


def test_the_path_as_data() -> None:
    data = path_json(PATH, kept("anna", a=True), "b")
    assert [(one["lesson"], one["done"], one["right"]) for one in data["lessons"][:2]] == [
        ("a", True, True),
        ("b", False, None),
    ]
    assert (data["person"], data["next"]) == ("anna", "b")


def test_a_class_is_a_row_for_each_person() -> None:
    everybody = [kept("anna", a=True, c=False), kept("ben", a=False, other=None)]
    lines = [line.split() for line in summary_text(everybody, PLAIN).splitlines()]
    assert lines == [["person", "done", "right", "wrong"], ["anna", "2", "1", "1"], ["ben", "2", "0", "1"]]
    assert [one["lessons"]["a"]["prediction"] for one in summary_json(everybody)["persons"]] == ["yes", "no"]
    assert summary_text([], PLAIN) == golden(1)


def test_the_next_lesson_is_the_first_behind_this_one_that_is_not_done() -> None:
    assert PATH.next_after("", ()) == "a"
    assert PATH.next_after("b", {"a", "b", "c"}) == "d"
    assert PATH.next_after("d", {"d"}) == "a"
    assert PATH.next_after("not on it", {"a"}) == "b"
    assert PATH.next_after("d", {"a", "b", "c", "d"}) == ""
    assert PATH.describe_position("c") == "lesson 3 of 4, Then"
    assert PATH.describe_position("not on it") == ""


def test_the_path_of_the_own_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "b-one.yaml").touch()
    assert "scatter" in load_learning_path().names
    (tmp_path / "scenarios" / "learning-path.txt").write_text("# All\nb-one.yaml\nnot there.yaml\n")
    assert load_learning_path().chapters == {"All": ("b_one",)}
