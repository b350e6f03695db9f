"""What is kept of a person: a line for each lesson taken, and nothing that is ever lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.errors import LabError, UsageError
from lab.features.lessons.progress import (
    Attempt,
    progress_folder,
    read_all_progress,
    read_progress,
    record_attempt,
    resolve_person,
)
from tests.golden import golden


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LAB_PROGRESS", raising=False)
    return tmp_path / "state" / "lab" / "learn"


def attempt(lesson: str, prediction: str = "", right: bool | None = None) -> Attempt:
    return Attempt(lesson=lesson, prediction=prediction, right=right, run="run", time=1.5)


def test_what_is_kept_is_read_again_in_its_order(folder: Path) -> None:
    made = [attempt("scatter", "[0.0]", False), attempt("scatter", "[20.0]", True), attempt("gather")]
    for one in made:
        record_attempt("anna", one)
    kept = read_progress("anna")
    assert (kept.attempts, kept.problem) == (tuple(made), "")
    assert [path.name for path in folder.iterdir()] == ["anna.jsonl"]
    assert read_progress("ben").attempts == ()


def test_what_counts_is_the_first_prediction() -> None:
    for one in (attempt("a"), attempt("a", "x", False), attempt("a", "y", True), attempt("b")):
        record_attempt("anna", one)
    kept = read_progress("anna")
    assert {name: one.right for name, one in kept.counted_attempts.items()} == {"a": False, "b": None}
    assert (kept.count(True), kept.count(False), kept.count(None)) == (0, 1, 1)


def test_a_class_on_one_machine_shares_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_all_progress() == []
    monkeypatch.setenv("LAB_PROGRESS", str(tmp_path / "class"))
    assert progress_folder() == tmp_path / "class"
    for person in ("ben", "anna"):
        record_attempt(person, attempt("scatter"))
    (tmp_path / "class" / "notes.txt").write_text("not ours")
    (tmp_path / "class" / "-x.jsonl").write_text("no name")
    assert [kept.person for kept in read_all_progress()] == ["anna", "ben"]


@pytest.mark.parametrize(
    "damage", ["{", '{"prediction": "x"}', "[1]", "null", '{"lesson": 3}', "\x00\ufffd", "[" * 9999]
)
def test_damage_is_a_sentence_and_costs_no_other_line(folder: Path, damage: str) -> None:
    record_attempt("anna", attempt("scatter", "x", True))
    with (folder / "anna.jsonl").open("a") as file:
        file.write(damage)  # without an end of line, as of somebody who was killed
    record_attempt("anna", attempt("gather"))
    kept = read_progress("anna")
    assert [one.lesson for one in kept.attempts] == ["scatter", "gather"]
    assert kept.problem == golden(1, folder)
    assert damage in (folder / "anna.jsonl").read_text()


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/b", "-x", ".x", "a b", "a\n", "x" * 64, "a\0", "$(touch x)", "é"]
)
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=golden(1)):
        resolve_person(name)


def test_a_name_is_that_of_the_user_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_person("Anna.B-2_c") == "Anna.B-2_c"
    monkeypatch.setenv("LOGNAME", "DOMAIN\\anna b")
    assert resolve_person(None) == "DOMAIN-anna-b"


def test_somebody_elses_link_or_pipe_is_neither_followed_nor_waited_for(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("mine\n")
    (folder / "anna.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "ben.jsonl")
    for person in ("anna", "ben"):
        kept = read_progress(person)
        assert kept.attempts == ()
        assert "cannot read" in kept.problem
    with pytest.raises(LabError, match=golden(1)):
        record_attempt("anna", attempt("scatter"))
    assert (tmp_path / "secret").read_text() == "mine\n"


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_PROGRESS", str(tmp_path / "file" / "below"))
    with pytest.raises(LabError, match="set LAB_PROGRESS") as refusal:
        record_attempt("anna", attempt("scatter"))
    assert refusal.value.message.startswith(golden(1))
    assert "cannot read" in read_progress("anna").problem
