"""What a run earns by what it met, and what earns nothing."""

from __future__ import annotations

from typing import Any

import pytest

from lab.diagnosis.facts import RankFacts, RunFacts
from lab.features.grade.grades import explain_forfeit, list_points, score_expectations, was_check_interrupted
from lab.features.grade.keys import Grading, list_expectations
from lab.node.messages.agent import Exited, Limited
from lab.record.events import NodeLost
from lab.record.result import Expectation, RankResult, Result
from lab.spec.declare import keys_of
from lab.spec.scenario import Expect, Tolerance
from tests.golden import golden

EXPECT = Expect(notes={"sum": 3, "mine": "rank"}, logs={1: "done"}, check="verify.py:check")


def met(what: str, *ranks: int | None, but: tuple[int | None, ...] = ()) -> list[Expectation]:
    return [Expectation(what=what, rank=rank, expected=1, got=1, met=rank not in but) for rank in ranks]


def result(*expectations: Expectation, verdict: Any = "passed", stopped: tuple[int, ...] = ()) -> Result:
    ranks = tuple(RankResult(rank=rank, exit_code=0, stopped=rank in stopped) for rank in (0, 1))
    return Result(verdict=verdict, ranks=ranks, expectations=expectations)


def earned(
    found: Result, expect: Expect = EXPECT, grading: Grading | None = None, why_not: str = ""
) -> dict[str, float]:
    return {score.what: score.points for score in score_expectations(expect, grading or Grading(), found, why_not)}


ALL = [
    *met("exit", 0, 1),
    *met("note sum", 0, 1),
    *met("note mine", 0, 1),
    *met("log", 1),
    *met("check verify.py:check", None),
]


def test_each_expectation_is_worth_one_point_or_what_the_scenario_says() -> None:
    assert list_points(EXPECT, Grading()) == dict.fromkeys(["exit", "note sum", "note mine", "log", "check"], 1.0)
    assert earned(result(*ALL), grading=Grading(points={"note sum": 2.5, "exit": 0})) == {
        "exit": 0,
        "note sum": 2.5,
        "note mine": 1,
        "log": 1,
        "check": 1,
    }


def test_an_expectation_that_one_rank_did_not_meet_earns_nothing_and_says_where() -> None:
    found = result(*met("exit", 0, 1), *met("note sum", 0, 1, but=(1,)), *met("note mine", 0, 1))
    assert earned(found) == {"exit": 1, "note sum": 0, "note mine": 1, "log": 0, "check": 0}
    told = {score.what: score.messages for score in score_expectations(EXPECT, Grading(), found)}
    assert told["note sum"] == (golden(1),)
    assert told["note mine"] == ()
    assert told["check"] == (golden(2),)


def test_a_script_that_does_nothing_earns_nothing_though_it_ends_well() -> None:
    idle = result(*met("exit", 0, 1), *met("note sum", 0, 1, but=(0, 1)))
    for exits in ({}, {0: 0, 1: 0}):
        assert set(earned(idle, Expect(notes={"sum": 3}, exit=exits)).values()) == {0}
    (score, _) = score_expectations(Expect(notes={"sum": 3}), Grading(), idle)
    assert score.met
    assert golden(1) in score.messages[0]


def test_an_end_that_is_asked_for_by_itself_earns_its_points() -> None:
    assert earned(result(*met("exit", 0, 1)), Expect()) == {"exit": 1}
    assert earned(result(*met("exit", 0, 1)), Expect(exit={1: 3}, notes={"sum": 3}))["exit"] == 1


def test_ranks_that_had_to_be_stopped_did_not_end_well() -> None:
    found = result(*met("exit", 0), *met("note sum", 0, 1), verdict="hung", stopped=(1,))
    score = score_expectations(EXPECT, Grading(), found)[0]
    assert (score.what, score.met, score.points) == ("exit", False, 0)
    assert score.messages == (golden(1),)


def test_where_another_verdict_is_expected_nobody_has_to_end_well() -> None:
    expect = Expect(verdict="hung", culprit=1, reason="barrier")
    hung = result(*met("verdict", None), *met("culprit", None), *met("reason", None), stopped=(0, 1))
    assert earned(hung, expect) == {"culprit": 1, "reason": 1, "verdict": 1}


def test_nothing_counts_of_a_run_that_reached_a_limit_or_cost_a_node() -> None:
    facts = RunFacts(ranks=[])
    assert explain_forfeit(facts) == ""
    facts.limits.append(Limited(0.0, "node0", rank=-1, what="output", limit=1 << 20))
    assert explain_forfeit(facts) == "", "the check is not theirs"
    facts.limits.append(Limited(0.0, "node0", what="processes", limit=256, excess=9))
    assert explain_forfeit(facts) == golden(1)
    lost = RunFacts(ranks=[], lost_nodes=[NodeLost(0.0, "node1", "ran out of memory")])
    assert explain_forfeit(lost) == golden(2)
    assert explain_forfeit(RunFacts(ranks=[], earlier=[lost])) == golden(2)
    silent = RunFacts(ranks=[RankFacts(rank=rank, started=1.0, ended=2.0 if rank else None) for rank in (0, 1)])
    assert explain_forfeit(silent) == golden(3)
    assert set(earned(result(*ALL), why_not=golden(4)).values()) == {0}


@pytest.mark.parametrize("what", ["calls", "replicas"])
def test_every_kind_of_expectation_can_be_worth_something(what: str) -> None:
    expect = Expect(extra={what: {"calls": ["barrier"], "replicas": "equal"}[what]})
    ranks = (None,) if what == "replicas" else (0, 1)
    assert earned(result(*met("exit", 0, 1), *met(what, *ranks)), expect) == {"exit": 1, what: 1}


def test_every_expectation_of_a_scenario_is_graded() -> None:
    said: dict[str, Any] = {
        "exit": {0: 3},
        "notes": {"a": 1, "b": 2},
        "logs": {0: "x"},
        "check": "verify.py:check",
        "verdict": "hung",
        "culprit": 0,
        "restarts": 1,
        "reason": "x",
        "tolerance": Tolerance(),
    }
    assert said.keys() == {one.attribute for one in keys_of(Expect).values()}
    graded = [
        "exit",
        "note a",
        "note b",
        "log",
        "calls",
        "replicas",
        "detected_within",
        "check",
        "verdict",
        "culprit",
        "restarts",
        "reason",
    ]
    extra = {"calls": ["barrier"], "replicas": "equal", "detected_within": 5.0}
    assert list_expectations(Expect(**said, extra=extra)) == graded


@pytest.mark.parametrize(
    ("check", "again"),
    [
        (None, False),
        (RankFacts(rank=-1, ended=1.0, code=0), False),
        (RankFacts(rank=-1, ended=1.0, code=1, error="AssertionError: wrong"), False),
        (RankFacts(rank=-1, ended=1.0, signal="SIGKILL", out_of_memory=True), False),
        (RankFacts(rank=-1, ended=1.0, signal="SIGKILL"), True),
        (RankFacts(rank=-1, ended=1.0, error="the check did not end within 1m"), True),
    ],
    ids=range(6),
)
def test_a_check_that_did_not_end_by_itself_is_made_again(check: RankFacts | None, again: bool) -> None:
    facts = RunFacts(ranks=[RankFacts(rank=0, started=0.0, ended=1.0, code=0)], check=check)
    assert was_check_interrupted(facts) == again


def test_a_run_is_made_again_whose_node_is_lost_when_all_ranks_have_ended() -> None:
    over = RankFacts(rank=0, started=0.0, ended=1.0, code=0)
    lost = NodeLost(2.0, "node0", "was removed")
    assert was_check_interrupted(RunFacts(ranks=[over], lost_nodes=[lost]))
    assert not was_check_interrupted(
        RunFacts(ranks=[RankFacts(rank=0, started=0.0, node_lost=True)], lost_nodes=[lost])
    )


def test_a_check_that_took_too_long_and_was_killed_then_took_too_long() -> None:
    facts = RunFacts(ranks=[])
    facts.add(Exited(-1, 1.0, "node0", error="the check did not end within 1m"))
    facts.add(Exited(-1, 2.0, "node0", signal="SIGKILL", stopped=True))
    assert facts.check is not None
    assert facts.check.error == golden(1)
