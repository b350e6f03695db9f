"""Every way to break a scenario file: a person reads where, what was found, and what is allowed or was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.errors import ScenarioError
from lab.feature import KEYS
from lab.spec.load import load_scenario

TABLE = Path(__file__).with_name("refusals.txt")
WORDS = {"SCRIPT ": "script: train.py\n", "WORLD ": "nodes: 2\nnproc_per_node: 1\n"}
SIGNS = {"⏎": "\n", "⇥": "\t", "⍽": "\u00a0", "␀": "\0", "␇": "\a"}


def refusals() -> Iterator[Any]:
    """A file, and for each of its problems the place, what was found and what is allowed."""
    cases: list[tuple[str, list[list[str]]]] = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if " | " in line:
            file, *problem = (cell.strip() for cell in f"{line} ".split(" | "))
            if file:
                cases.append((file, []))
            cases[-1][1].append(problem)
    for file, problems in cases:
        text = "" if file == "∅" else f"{file}\n"
        for word, meaning in {**WORDS, **SIGNS}.items():
            text = text.replace(word, meaning)
        of_features = any(re.search(rf"\b{key.split('.')[-1]}:", text) for key in KEYS)
        yield pytest.param(text, problems, id=file, marks=[pytest.mark.features] if of_features else [])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script, a check, two folders and a link that leaves it."""
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "verify.py").write_text("def check_sums(results):\n    return True\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "loop.py").write_text("")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere.py"
    elsewhere.write_text("")
    (tmp_path / "outside.py").symlink_to(elsewhere)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("text", "problems"), list(refusals()))
def test_a_broken_scenario_is_refused_with_a_line_for_each_problem(
    folder: Path, text: str, problems: list[list[str]]
) -> None:
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(Path("scenario.yaml"))
    lines = refusal.value.message.split("\n")
    assert len(lines) == len(problems)
    for line, (place, found, allowed) in zip(lines, problems, strict=True):
        assert line.startswith(f"scenario.yaml:{place}: {found}"), line
        assert allowed.replace("FOLDER", str(folder)) in line.removeprefix(f"scenario.yaml:{place}: {found}"), line
    assert refusal.value.exit_code == 2


def test_the_table_of_refusals_is_read_whole() -> None:
    assert len(list(refusals())) > 150
