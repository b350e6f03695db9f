"""`lab run --chaos`: what it refuses before anything is made, and how it tells what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli.main import main
from lab.features.chaos.trials import Schedule, SearchResult, Trial, summary_text, trial_text
from lab.report.style import Style
from tests.features.chaos.test_draw import pool
from tests.golden import golden

PLAIN = Style(colour=False)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    (tmp_path / "s.py").write_text("print()\n")
    (tmp_path / "fails.yaml").write_text("script: s.py\nexpect: {verdict: failed}\n")
    return str(tmp_path / "s.py")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seed", "7"], "--seed needs --chaos"),
        (["--faults", "kill"], "--faults needs --chaos"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(
    words: list[str], told: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", scenario, *words]) == 2
    assert told in capsys.readouterr().err


def test_a_search_is_of_one_scenario_that_is_to_pass(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", scenario, scenario.replace("s.py", "fails.yaml"), "--chaos"]) == 2
    assert golden(1) in capsys.readouterr().err
    fails = scenario.replace("s.py", "fails.yaml")
    assert main(["run", fails, "--chaos", "--engine", "local", "--name", "t-never-made"]) == 2
    assert golden(2) in capsys.readouterr().err


def drawn() -> Schedule:
    schedule = pool(7, "kill", most=1).draw(set())
    assert schedule is not None
    return schedule


def test_each_trial_is_a_line_with_its_faults_and_what_they_broke() -> None:
    trial = Trial(schedule=drawn(), ended="failed", broken="it hung: x", seconds=0.5)
    first, second = trial_text(trial, 3, 50, PLAIN).splitlines()
    assert first.startswith("[ 3/50]")
    assert "kill node" in first
    assert second.strip() == "it hung: x"


def test_the_summary_says_what_was_found_and_where_it_is() -> None:
    schedule = drawn()
    nothing = SearchResult(trials=[Trial(schedule=schedule, ended="passed")])
    assert golden(1) in summary_text(nothing, Path("c.yaml"), 1.0, PLAIN)
    found = SearchResult(
        trials=[Trial(schedule=schedule, ended="failed")], schedule=schedule, broken="it hung", proofs=3
    )
    told = summary_text(found, Path("c.yaml"), 1.0, PLAIN)
    assert golden(2) in told
    assert "c.yaml" in told
    assert "not every time" in summary_text(SearchResult(**{**vars(found), "proofs": 1}), Path("c.yaml"), 1.0, PLAIN)
