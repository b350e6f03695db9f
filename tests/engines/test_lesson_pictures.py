"""The pictures on the pages of the lessons, drawn from real runs; each is kept until its lesson changes."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.spec.load import load_scenario
from tests.engines.lessons import FILES, LIBRARY, Lesson
from tests.engines.lessons import loaded as scenario_of

on_local = pytest.mark.parametrize("engine", ["local"], indirect=True)


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    """The names of dev/lesson_pictures.py."""
    return runpy.run_path(str(LIBRARY.parent / "dev" / "lesson_pictures.py"))


@on_local
def test_a_lesson_has_the_picture_of_its_step_and_of_a_run_that_failed_there_is_the_reason(
    drawn: dict[str, Any], lesson: Lesson
) -> None:
    result = lesson("scatter")
    picture = drawn["draw"](result)
    assert drawn["has_picture"](picture)
    root = ET.fromstring(picture)
    assert root.tag.endswith("svg")
    assert "scatter" in "".join(root.itertext())

    why = drawn["draw"](replace(result, verdict="failed"))
    assert not drawn["has_picture"](why)
    assert why.endswith(result.reason)


def test_a_picture_is_drawn_anew_when_the_scenario_or_its_script_has_changed(
    drawn: dict[str, Any], tmp_path: Path
) -> None:
    files = [FILES["scatter"], scenario_of("scatter").script]
    copies = [tmp_path / path.name for path in files]
    for path, copy in zip(files, copies, strict=True):
        copy.write_bytes(path.read_bytes())

    def kept() -> Path:
        return drawn["picture_file"](copies[0], load_scenario(copies[0]))  # type: ignore[no-any-return]

    assert kept() == drawn["picture_file"](FILES["scatter"], scenario_of("scatter"))
    names = {kept().name}
    for copy in copies:
        copy.write_text(copy.read_text() + "\n# changed\n")
        names.add(kept().name)
    assert len(names) == 3
