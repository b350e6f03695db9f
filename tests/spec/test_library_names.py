"""Lessons by name: where they are looked for, and what comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import feature as carried
from lab.errors import UsageError
from lab.spec.load import find_lesson, find_scenarios, library_folder, list_lessons, load_scenario, resolve_lesson
from tests.golden import golden

pytestmark = pytest.mark.features
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of lessons where the lab is installed in this folder."""
    (folder / "lab" / "scenarios" / "topic").mkdir(parents=True)
    monkeypatch.setattr(carried, "__file__", str(folder / "lab" / "carried.py"))
    return folder / "lab" / "scenarios"


def test_a_checkout_has_its_lessons_beside_the_package():
    assert library_folder() == ROOT / "scenarios"


def test_an_installed_lab_has_its_lessons_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = installed(tmp_path / "site-packages", monkeypatch)
    (library / "topic" / "a_b.yaml").touch()
    (library / ".hidden").mkdir()
    (library / ".hidden" / "c.yaml").touch()
    assert library_folder() == library
    assert list_lessons() == {"a_b": [library / "topic" / "a_b.yaml"]}


def test_every_lesson_is_found_by_the_name_of_its_file_and_by_its_own():
    for file in find_scenarios([ROOT / "scenarios"]):
        assert find_lesson(file.stem) == file
        assert find_lesson(f"@{load_scenario(file).name}") == file


def test_ones_own_scenarios_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = installed(tmp_path / "site-packages", monkeypatch)
    for name in ("one.yaml", "topic/two.yaml"):
        (library / name).touch()
    Path("scenarios").mkdir()
    for name in ("one.yml", "three.yaml"):
        Path("scenarios", name).touch()
    found = {name: str(files[0]) for name, files in list_lessons().items()}
    assert found == {
        "one": "scenarios/one.yml",
        "two": str(library / "topic/two.yaml"),
        "three": "scenarios/three.yaml",
    }


def test_two_of_one_name_in_one_folder_have_to_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = installed(tmp_path / "site-packages", monkeypatch)
    for name in ("one.yaml", "topic/one.yaml"):
        (library / name).touch()
    with pytest.raises(UsageError, match=golden(1)):
        find_lesson("one")


def test_a_path_is_left_as_it_is():
    for path in ("scatter", "@scatter.yaml", "a/@b", "train.py"):
        assert resolve_lesson(Path(path)) == Path(path)
