"""The schema of scenarios: printed, written beside new scenarios, named in their first line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli.main import main
from lab.spec.load import SCHEMA_FILE, files_below, library_folder, schema_file

FIRST = "# yaml-language-server: $schema="


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def first_line(path: str) -> str:
    return Path(path).read_text().partition("\n")[0]


def test_it_is_printed_as_it_comes_with_the_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema_file().read_text()


def test_every_lesson_names_it_by_a_path_that_holds_wherever_they_lie() -> None:
    for file in files_below(library_folder()):
        named = first_line(str(file)).removeprefix(FIRST)
        assert (file.parent / named).resolve() == schema_file(), file


@pytest.mark.parametrize("words", [["mine"], ["--from", "story"]])
def test_a_new_scenario_names_it_and_it_lies_beside(words: list[str]) -> None:
    assert main(["new", *words]) == 0
    (scenario,) = Path().glob("*.yaml")
    assert first_line(str(scenario)) == FIRST + SCHEMA_FILE
    assert scenario.read_text().count(FIRST) == 1
    assert Path(SCHEMA_FILE).read_bytes() == schema_file().read_bytes()


def test_a_schema_that_is_there_is_named_and_left_alone() -> None:
    Path("scenarios/topic").mkdir(parents=True)
    Path("scenarios", SCHEMA_FILE).write_text("{}")
    assert main(["new", "one"]) == 0
    assert main(["new", "two", "--folder", "scenarios/topic"]) == 0
    assert first_line("scenarios/one.yaml") == FIRST + SCHEMA_FILE
    assert first_line("scenarios/topic/two.yaml") == f"{FIRST}../{SCHEMA_FILE}"
    assert Path("scenarios", SCHEMA_FILE).read_text() == "{}"
    assert not Path("scenarios/topic", SCHEMA_FILE).exists()
