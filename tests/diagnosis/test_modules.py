"""A module that a rank did not find: what is said of the way to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.errors import missing_module, way_to_missing
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.features.advice.advice import find_unshipped
from lab.record.events import NotShipped
from lab.run.snapshot import read_snapshot
from tests.golden import golden


@pytest.mark.parametrize(
    ("error", "module"),
    [
        ("ModuleNotFoundError: No module named 'tqdm'", "tqdm"),
        ("ModuleNotFoundError: No module named 'tqdm.auto2'", ""),
        ("ModuleNotFoundError: No module named 'tqdm.x'; 'tqdm' is not a package", ""),
        ("ModuleNotFoundError: No module named '_tkinter'", ""),
        ("ModuleNotFoundError: mine", ""),
        ("ImportError: No module named 'tqdm'", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_module_that_is_not_there(error: str, module: str) -> None:
    assert missing_module(error) == module


def facts_of(module: str) -> RunFacts:
    return RunFacts(
        ranks=[RankFacts(rank=0, error=f"ModuleNotFoundError: No module named '{module}'"), RankFacts(rank=1)]
    )


def test_a_package_is_to_be_named_and_a_file_of_ones_own_to_be_shipped(tmp_path: Path) -> None:
    facts = facts_of("mine")
    assert golden(1) in way_to_missing(facts, facts.ranks[0])
    assert way_to_missing(facts, facts.ranks[1]) == ""
    facts.add(NotShipped(1.0, "mine", "/p/mine.py", "/p/s"))
    said = way_to_missing(facts, facts.ranks[0])
    assert said.startswith(golden(2))
    assert "requirements" not in said


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("mine.py", "mine.py"),
        ("mine/__init__.py", "mine"),
        ("mine/other.py", ""),
        ("s/mine/other.py", "s/mine"),
        ("s/src/mine/__init__.py", "s/src/mine"),
        ("src/mine.py", "src/mine.py"),
        ("s/deep/mine.py", ""),
        ("other.py", ""),
    ],
)
def test_a_file_of_ones_own_is_looked_for_where_it_may_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, found: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "s").mkdir()
    monkeypatch.chdir(tmp_path / "s")
    (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / path).write_text("")
    told = [(fact.module, fact.path) for fact in find_unshipped(facts_of("mine"), tmp_path / "s", None)]
    assert told == ([("mine", str(tmp_path / found))] if found else [])


def test_a_file_that_gitignore_names_is_named_with_the_way_to_ship_it(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.csv\n")
    for name in ("data.csv", "shipped.txt"):
        (tmp_path / name).write_text("x")
    names = ("data.csv", "/var/lab/run/work/data.csv", "shipped.txt", "nowhere.csv", "../other")
    ranks = [
        RankFacts(rank=rank, error=f"FileNotFoundError: [Errno 2] No such file or directory: '{name}'")
        for rank, name in enumerate(names)
    ]
    facts = RunFacts(ranks=ranks)
    for fact in find_unshipped(facts, tmp_path, read_snapshot(tmp_path)):
        facts.add(fact)
    clauses = [way_to_missing(facts, rank) for rank in ranks]
    assert clauses[0] == clauses[1] == golden(1, tmp_path)
    assert clauses[2:] == ["", "", ""]
