"""The scenario library as a whole: its catalogue, its order, its texts."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.features.lessons.question import LETTERS, RunSize, scenario_question
from lab.features.lessons.verb_scenarios import read_chapters
from lab.spec.expressions import evaluate_expected, rank_variables
from lab.spec.load import find_scenarios, load_scenario

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "scenarios"
FILES = {str(path.relative_to(FOLDER)): path for path in find_scenarios([FOLDER])}


def test_the_learning_path_names_every_lesson_once() -> None:
    named = [name for chapter in read_chapters(FOLDER).values() for name in chapter]
    assert sorted(named) == sorted(FILES)


def test_the_catalogue_is_current() -> None:
    made = runpy.run_path(str(ROOT / "dev" / "catalogue.py"))["catalogue"]()
    written = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert written == made, "make it again: python dev/make_reference.py"


def test_every_lesson_asks_and_teaches() -> None:
    for name, path in FILES.items():
        scenario = load_scenario(path)
        assert scenario.learn, name
        assert scenario_question(scenario).ask, name


def test_every_question_has_an_answer_at_the_lessons_own_size() -> None:
    places: Counter[int] = Counter()
    for name, path in FILES.items():
        scenario = load_scenario(path)
        asked = scenario_question(scenario)
        assert asked.ask, name
        assert scenario.nodes is not None, name
        size = RunSize(nnodes=scenario.nodes, nproc_per_node=scenario.nproc_per_node or 1)
        right = asked.compute_answer(scenario.expect.notes, size)
        assert asked.is_right(asked.parse_reply(right), right), name
        for letter, choice in zip(LETTERS, asked.choices, strict=False):
            assert asked.parse_reply(letter) == asked.parse_reply(choice) == choice, name
            assert asked.is_right(choice, right) is (choice == right), name
        places[asked.choices.index(right) if asked.choices else -1] += 1
    assert max(places.values()) < len(FILES) / 2, "who always says the same must not be right"


def test_what_is_computed_is_an_answer_or_unknown_at_other_sizes_too() -> None:
    """The scenarios' own arithmetic is tested by runs; here nothing may raise, and no choice be made up."""
    computed = 0
    for name, path in FILES.items():
        scenario = load_scenario(path)
        asked = scenario_question(scenario)
        assert asked.ask, name
        for nnodes, nproc_per_node in ((1, 1), (2, 1), (5, 1), (2, 2), (4, 3)) if asked.is_computed else ():
            right = asked.compute_answer(scenario.expect.notes, RunSize(nnodes, nproc_per_node))
            assert asked.parse_reply(right) == right, name
            computed += bool(right)
    assert computed > 50


def test_the_page_on_incidents_names_each_of_them() -> None:
    page = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")
    told = [name for name in FILES if name.startswith(("incidents/", "survival/"))]
    assert [name for name in told if f"(../scenarios/{name})" not in page] == []


def list_integers(value: Any) -> Iterator[int]:
    """All integers in a value."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from list_integers(item)
    if isinstance(value, int):
        yield value


@pytest.mark.parametrize("nodes", [12, 64])
def test_no_lesson_expects_an_integer_that_int64_cannot_hold(nodes: int) -> None:
    too_large = set()
    for name, path in FILES.items():
        for note, expected in load_scenario(path).expect.notes.items():
            variables_of = rank_variables(nodes, 1)
            for variables in (variables_of[0], variables_of[nodes - 1]):
                if any(abs(one) >= 2**63 for one in list_integers(evaluate_expected(expected, variables))):
                    too_large.add((name, note))
    assert not too_large
