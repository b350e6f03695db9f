"""What came out of the ranks against what had to come out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.expectations import check_expectations
from lab.record.layout import RESULT
from lab.record.read import Record
from lab.record.result import Expectation, RankResult, Result
from lab.spec.expressions import rank_variables
from lab.spec.scenario import Expect, Tolerance
from tests.golden import golden


def rank(number: int, **facts: Any) -> RankResult:
    return RankResult(rank=number, node=f"node{number}", local_rank=0, **{"exit_code": 0, **facts})


def check(expect: Expect, *ranks: RankResult) -> tuple[Expectation, ...]:
    return check_expectations(expect, ranks, rank_variables(len(ranks), 1))


def notes_of(expect: Expect, *ranks: RankResult) -> list[tuple[int | None, Any, Any, bool]]:
    found = [each for each in check(expect, *ranks) if each.what.startswith("note ")]
    return [(each.rank, each.expected, each.got, each.met) for each in found]


# -------------------------------------------------------------------------------------------------------- exit codes


def test_every_rank_is_expected_to_exit_with_0() -> None:
    assert check(Expect(), rank(0), rank(1, exit_code=3)) == (
        Expectation(what="exit", rank=0, expected=0, got=0, met=True),
        Expectation(what="exit", rank=1, expected=0, got=3, met=False),
    )


def test_a_rank_may_be_expected_to_exit_otherwise() -> None:
    first, second = check(Expect(exit={1: 3}), rank(0), rank(1, exit_code=3))
    assert (first.met, second.met, second.expected) == (True, True, 3)


def test_where_another_verdict_is_expected_only_the_ranks_that_are_named_have_an_exit_code() -> None:
    found = check(Expect(verdict="failed", exit={1: 3}), rank(0, exit_code=None, stopped=True), rank(1, exit_code=3))
    assert found == (Expectation(what="exit", rank=1, expected=3, got=3, met=True),)


@pytest.mark.parametrize(
    ("facts", "got"),
    [({"signal": "SIGSEGV"}, "SIGSEGV"), ({}, "(did not exit)")],
)
def test_a_rank_that_did_not_exit_shows_what_became_of_it(facts: dict[str, Any], got: str) -> None:
    (found,) = check(Expect(), rank(0, exit_code=None, **facts))
    assert (found.got, found.met) == (got, False)


def test_the_end_of_a_rank_that_the_lab_stopped_is_not_its_own() -> None:
    stopped = rank(0, exit_code=None, signal="SIGTERM", stopped=True)
    assert check(Expect(), stopped) == ()
    (found,) = check(Expect(exit={0: 3}), stopped)
    assert (found.got, found.met) == (golden(1), False)


def test_a_negative_exit_code_stands_for_a_signal() -> None:
    for signal, met in {"SIGKILL": True, "SIGSEGV": False, "SIGMADEUP": False}.items():
        (found,) = check(Expect(exit={0: -9}), rank(0, exit_code=None, signal=signal))
        assert (found.got, found.met) == (signal, met)


def test_ranks_come_in_order() -> None:
    assert [found.rank for found in check(Expect(), rank(2), rank(0), rank(1))] == [0, 1, 2]


def test_what_is_expected_of_a_rank_that_the_run_does_not_have_is_not_met() -> None:
    expect = Expect(exit={7: 0}, notes={"sum": {0: 1, 7: "rank"}}, logs={7: "ready"})
    assert check(expect, rank(0, notes={"sum": 1}))[2:] == (
        Expectation(what="exit", rank=7, expected=0, got="(no such rank)", met=False),
        Expectation(what="note sum", rank=7, expected="rank", got="(no such rank)", met=False),
        Expectation(what="log", rank=7, expected="ready", got="(no such rank)", met=False),
    )


# ------------------------------------------------------------------------------------------------------------- notes


def test_an_expected_note_is_computed_for_each_rank() -> None:
    expect = Expect(notes={"received": ["10.0 * rank"]})
    assert notes_of(expect, rank(0, notes={"received": [0.0]}), rank(1, notes={"received": [11.0]})) == [
        (0, [0.0], [0.0], True),
        (1, [10.0], [11.0], False),
    ]


def test_a_mapping_of_ranks_expects_a_note_only_of_those_ranks() -> None:
    assert notes_of(Expect(notes={"sum": {1: 5}}), rank(0), rank(1, notes={"sum": 5})) == [(1, 5, 5, True)]


def test_a_missing_note_is_told_with_a_near_match() -> None:
    expect = Expect(notes={"received": 1})
    assert notes_of(expect, rank(0, notes={"recieved": 1}), rank(1, notes={"x": 1})) == [
        (0, 1, golden(1), False),
        (1, 1, "(nothing noted)", False),
    ]


def test_a_note_of_none_is_not_a_missing_note() -> None:
    assert notes_of(Expect(notes={"x": None}), rank(0, notes={"x": None})) == [(0, None, None, True)]


def test_tolerances_are_those_of_the_scenario() -> None:
    ranks = rank(0, notes={"loss": 1.001})
    assert not notes_of(Expect(notes={"loss": 1.0}), ranks)[0][3]
    assert notes_of(Expect(notes={"loss": 1.0}, tolerance=Tolerance(relative=0.01)), ranks)[0][3]
    assert notes_of(Expect(notes={"loss": 1.0}, tolerance=Tolerance(absolute=0.01)), ranks)[0][3]


def test_floats_that_json_lacks_are_told_as_notes_write_them() -> None:
    expect = Expect(notes={"x": [math.nan, {"low": -math.inf}, 1.0]})
    noted = ["nan", {"low": "-inf"}, 1.0]
    assert notes_of(expect, rank(0, notes={"x": noted})) == [(0, noted, noted, True)]


def test_an_expected_value_that_cannot_be_computed_is_not_met_and_says_why() -> None:
    (found,) = notes_of(Expect(notes={"x": "1 / rank"}), rank(0, notes={"x": 1}))
    assert (found[0], found[1], found[3]) == (0, "1 / rank", False)
    assert found[2].startswith(golden(1))


def test_a_rank_without_variables_is_told_instead_of_passed_over() -> None:
    found = check_expectations(Expect(notes={"x": 1}), [rank(0, notes={"x": 1})], {})
    assert (found[1].got, found[1].met) == (golden(1), False)


# -------------------------------------------------------------------------------------------------------------- logs


def test_what_a_log_has_to_show_is_told_with_what_matched(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("starting\r\nreceived 30\nfertig: é\n", encoding="utf-8")
    (_, found) = check(Expect(logs={0: r"^received \d+$"}), rank(0, log_path=log))
    assert found == Expectation(what="log", rank=0, expected=r"^received \d+$", got="received 30", met=True)


def test_a_log_without_a_match_and_a_log_that_is_not_there_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "folder.log").mkdir()
    expect = Expect(verdict="failed", logs={0: "ready", 1: "ready", 2: "ready", 3: "ready"})
    found = check(
        expect,
        rank(0, log_path=tmp_path / "empty.log"),
        rank(1, log_path=tmp_path / "gone.log"),
        rank(2, log_path=None),
        rank(3, log_path=tmp_path / "folder.log"),
    )
    assert [each.met for each in found] == [False] * 4
    assert [each.got for each in found] == [
        "(no match)",
        "(no log)",
        "(no log)",
        golden(1),
    ]


def test_a_long_match_is_cut_for_the_result(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("x" * 1000)
    (_, found) = check(Expect(logs={0: "x+"}), rank(0, log_path=log))
    assert (found.got, found.met) == ("x" * 200, True)


@pytest.mark.parametrize("expected", ["2**(2000 * world_size)", 10**310, [1, {"a": -(10**301)}]])
def test_a_number_that_no_record_may_hold_is_recorded_as_text(expected: Any, tmp_path: Path) -> None:
    unmet = check(Expect(notes={"x": expected}), rank(0, notes={"x": 3}))[-1]
    assert (unmet.what, unmet.got, unmet.met) == ("note x", 3, False)
    result = Result(verdict="failed", expectations=(unmet,), path=tmp_path)
    (tmp_path / RESULT).write_text(json.dumps(result.to_json()))
    assert Result.load(tmp_path).expectations == (unmet,)
    assert Record(path=tmp_path).result().verdict == "failed"
