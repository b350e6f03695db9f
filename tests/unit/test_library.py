"""The scenario library as a whole: its catalogue, its order, its texts."""

from __future__ import annotations

from pathlib import Path

from lab.report.catalogue import catalogue_text, read_path
from lab.spec.load import find_scenarios, load_scenario

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scenarios"
FILES = {str(path.relative_to(FOLDER)): path for path in find_scenarios([FOLDER])}


def test_the_learning_path_names_every_lesson_once() -> None:
    named = [name for chapter in read_path(FOLDER).values() for name in chapter]
    assert sorted(named) == sorted(FILES)


def test_the_catalogue_is_current() -> None:
    scenarios = {Path("scenarios") / name: load_scenario(path) for name, path in FILES.items()}
    text = catalogue_text(Path("scenarios"), scenarios, read_path(FOLDER))
    written = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert written == text, "make it again: lab scenarios --markdown > docs/scenarios.md"


def test_every_lesson_says_what_there_is_to_learn_and_asks_for_a_prediction() -> None:
    for name, path in FILES.items():
        scenario = load_scenario(path)
        assert scenario.learn, name
        assert scenario.predict, name
