"""The search with a made-up runner: what it finds, how short that becomes, and what it proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.features.chaos.trials import (
    MOST_SHRINKING,
    PROOFS,
    Schedule,
    SearchResult,
    Trial,
    Trials,
    broken_by,
    choose_scenario_path,
    search_schedules,
    write_scenario,
)
from lab.record.result import Culprit, Expectation, RankResult, Result
from lab.run.cluster_slot import RunAttempt
from lab.run.options import RunOptions
from lab.spec.load import load_scenario
from lab.spec.scenario import Scenario
from tests.features.chaos.test_draw import pool
from tests.golden import golden

Bug = Callable[[Schedule], bool]


def looked_for(bug: Bug, runs: int = 200, seed: int = 7, most: int = 3) -> SearchResult:
    def attempt(schedule: Schedule, step: str) -> Trial:
        broken = "it broke" if bug(schedule) else ""
        return Trial(schedule=schedule, ended="failed" if broken else "passed", broken=broken, step=step)

    return search_schedules(pool(seed, "kill", most=most), runs, attempt, lambda _: None)


def kills(schedule: Schedule, node: str, least: int = 1) -> bool:
    return any(fault.what.nodes == (node,) and fault.when.count >= least for fault in schedule)


@pytest.mark.parametrize("seed", range(10))
def test_what_one_fault_breaks_is_shrunk_to_one_fault_at_the_first_such_moment(seed: int) -> None:
    found = looked_for(lambda schedule: kills(schedule, "node1"), seed=seed)
    assert [str(fault) for fault in found.schedule or ()] == ["kill node1"]
    assert found.schedule is not None
    assert found.schedule[0].when.count == 1
    assert found.proofs == PROOFS
    assert found.broken == "it broke"


@pytest.mark.parametrize("seed", range(10))
def test_what_takes_two_faults_is_shrunk_to_these_two(seed: int) -> None:
    found = looked_for(lambda schedule: kills(schedule, "node1", 3) and kills(schedule, "node0"), seed=seed)
    assert found.schedule is not None
    assert sorted(str(fault) for fault in found.schedule) == ["kill node0", "kill node1"]
    assert len([trial for trial in found.trials if trial.step == "shrunk"]) <= MOST_SHRINKING


def test_where_nothing_breaks_every_schedule_is_counted_and_nothing_is_found() -> None:
    found = looked_for(lambda _: False, runs=30)
    assert found.schedule is None
    assert found.ends == {"passed": 30}


def test_a_schedule_that_breaks_only_once_is_told_with_how_often_it_did() -> None:
    seen: list[Schedule] = []

    def once(schedule: Schedule) -> bool:
        seen.append(schedule)
        return len(seen) == 5

    found = looked_for(once)
    assert found.schedule == seen[4]
    assert found.proofs == 0
    assert found.broken == "it broke"


def unmet(what: str) -> Expectation:
    return Expectation(what=what, rank=0, expected=1, got=2)


NOTED = RankResult(rank=0, exit_code=0, notes={"sum": 2})
LOST = Culprit(node="node1", error="it was killed")


@pytest.mark.parametrize(
    ("result", "harms", "told"),
    [
        (Result(verdict="passed"), ["loses"], ""),
        (Result(verdict="failed", culprit=LOST), ["loses"], ""),
        (Result(verdict="failed", culprit=LOST, expectations=(unmet("note sum"),)), ["loses"], ""),
        (Result(verdict="hung", reason="rank 0 waits"), ["loses"], "it hung: rank 0 waits"),
        (Result(verdict="hung", reason="rank 0 waits"), ["spoils"], "it hung: rank 0 waits"),
        (Result(verdict="failed", expectations=(unmet("fault kill node1"),)), [], ""),
        (Result(verdict="failed", expectations=(unmet("note sum"),)), ["slows"], "no rank failed, but rank 0"),
        (Result(verdict="failed", expectations=(unmet("note sum"),)), ["spoils"], ""),
        (
            Result(verdict="failed", culprit=LOST, reason="r"),
            ["slows"],
            "it failed although its faults only delay ranks: r",
        ),
        (
            Result(verdict="failed", culprit=LOST, expectations=(unmet("note sum"),), ranks=(NOTED,)),
            ["loses"],
            "a rank",
        ),
        (Result(verdict="failed", culprit=LOST, expectations=(unmet("note other"),), ranks=(NOTED,)), ["loses"], ""),
        (Result(verdict="failed", culprit=LOST, reason="r"), [], "it failed although no fault occurred: r"),
    ],
)
def test_what_a_run_under_faults_may_end_with(result: Result, harms: list, told: str) -> None:
    found = broken_by(result, harms)
    assert found.startswith(told)
    assert bool(found) == bool(told)


class Slot:
    """Stands for a cluster: gives one result after the other."""

    def __init__(self, *results: Result) -> None:
        self._results = iter(results)

    def attempt(self, *_: object) -> RunAttempt:
        return RunAttempt(result=next(self._results))


@pytest.mark.parametrize(
    ("following", "broken"),
    [
        (Result(verdict="passed"), ""),
        (Result(verdict="failed", reason="EOFError"), "the next run, without faults, failed: EOFError"),
    ],
)
def test_the_run_after_a_failed_one_has_to_pass(following: Result, broken: str) -> None:
    schedule = pool(7, "kill", most=1).draw(set())
    assert schedule is not None
    failed = Result(verdict="failed", culprit=LOST, faults=({"fault": str(schedule[0])},))
    slot: Any = Slot(failed, following)
    scenario = Scenario(name="s", script=Path("s.py"))
    trial = Trials(warm_cluster=slot, scenario=scenario, options=RunOptions(), again=True).attempt(schedule, "drawn")
    assert (trial.ended, trial.broken) == ("failed", broken)


def test_what_was_found_is_a_scenario_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.yaml").write_text("script: s.py\nlearn: something\nexpect: {notes: {sum: 1}}\n")
    scenario, found = load_scenario(tmp_path / "s.yaml"), looked_for(lambda schedule: kills(schedule, "node1"))
    path = choose_scenario_path(scenario, 7)
    assert path == tmp_path / "chaos-7-s.yaml"
    write_scenario(replace(scenario, timeout_s=12.0), found, path, (2, 1), "lab run s.yaml --chaos --seed 7")
    again = load_scenario(path)
    assert again.extra == {"faults": found.schedule}
    assert (again.nodes, again.timeout_s, again.learn) == (2, 12.0, "")
    assert again.expect == scenario.expect
    assert golden(1) in path.read_text()
    assert choose_scenario_path(scenario, 7) == tmp_path / "chaos-7-s-2.yaml"
