"""What came out of the ranks against what had to come out."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from lab.record.result import Expectation, RankResult
from lab.spec.expressions import rank_variables
from lab.spec.scenario import Expect, Tolerance
from lab.verdict import expectations
from lab.verdict.expectations import check_expectations, equal, find_in_log


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
    [
        ({"signal": "SIGSEGV"}, "SIGSEGV"),
        ({"stopped": True}, "(stopped by the lab)"),
        ({}, "(did not exit)"),
    ],
)
def test_a_rank_that_did_not_exit_shows_what_became_of_it(facts: dict[str, Any], got: str) -> None:
    (found,) = check(Expect(), rank(0, exit_code=None, **facts))
    assert (found.got, found.met) == (got, False)


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
        (0, 1, "(nothing noted); did you mean 'recieved', which was noted?", False),
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
    why = "(the expression '1 / rank' cannot be computed for rank 0: division by zero)"
    assert found == (0, "1 / rank", why, False)


def test_a_rank_without_variables_is_told_instead_of_passed_over() -> None:
    found = check_expectations(Expect(notes={"x": 1}), [rank(0, notes={"x": 1})], {})
    assert (found[1].got, found[1].met) == ("(the variables of rank 0 are not known)", False)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3),
        (3.0, 3),
        (3, 3.0),
        (0.3, 0.1 + 0.2),
        (1e-9, 0.0),
        ("a", "a"),
        (True, True),
        (None, None),
        ([1, [2.0, "x"]], [1, [2.0, "x"]]),
        ((1, 2), [1, 2]),
        ([], []),
        ({"a": [1]}, {"a": [1.0]}),
        (math.nan, "nan"),
        (math.nan, math.nan),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ("nan", "nan"),
        ([1.0, 2.0], [1.0, 2.0]),
        (2**70, 2**70),
    ],
)
def test_these_values_are_equal(expected: Any, got: Any) -> None:
    assert equal(expected, got, 1e-5, 1e-8)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 4),
        (10**9, 10**9 + 1),
        (3.0, 3.1),
        (3, "3"),
        (3, [3]),
        ([3], 3),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ([1, 2], "12"),
        (True, 1),
        (1, True),
        (0, False),
        (1.0, True),
        (None, 0),
        (None, False),
        ("a", "A"),
        ("1", 1),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"b": 1}),
        ({}, []),
        (math.nan, 0.0),
        (math.nan, "NaN?"),
        (math.inf, "-inf"),
        (math.inf, 1e308),
        (1.0, "nan"),
        (1.0, math.nan),
        ("nan", math.nan),
        (10**400, 1.0),
        (1.0, 10**400),
    ],
)
def test_these_values_are_not_equal(expected: Any, got: Any) -> None:
    assert not equal(expected, got, 1e-5, 1e-8)


# -------------------------------------------------------------------------------------------------------------- logs


def test_a_log_is_searched_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("starting\r\nreceived 30\nfertig: é\n", encoding="utf-8")
    (_, found) = check(Expect(logs={0: r"^received \d+$"}), rank(0, log_path=log))
    assert found == Expectation(what="log", rank=0, expected=r"^received \d+$", got="received 30", met=True)
    assert find_in_log(log, r"^starting$") == "starting"
    assert find_in_log(log, "fertig: .$") == "fertig: é"
    assert find_in_log(log, r"\Areceived") is None
    assert find_in_log(log, r"starting\nreceived") == "starting\nreceived"


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
        "(the log cannot be read: Is a directory)",
    ]


def test_a_long_match_is_cut_for_the_result(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("x" * 1000)
    (_, found) = check(Expect(logs={0: "x+"}), rank(0, log_path=log))
    assert (found.got, found.met) == ("x" * 200, True)


def test_a_binary_log_is_searched_too(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(bytes(range(256)) * 10 + b"\nready\n")
    assert find_in_log(log, "^ready$") == "ready"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads logs in pieces of 10 characters, so that short ones have many borders."""
    monkeypatch.setattr(expectations, "CHUNK", 10)
    monkeypatch.setattr(expectations, "LONGEST_MATCH", 40)
    monkeypatch.setattr(expectations, "_LOOK_AHEAD", 5)


@pytest.mark.parametrize("before", range(25))
@pytest.mark.parametrize(
    ("line", "pattern", "match"),
    [
        ("received 30", r"^received \d+$", "received 30"),
        ("received 3000", r"received \d+", "received 3000"),
        ("a\nb\nc", r"^a\nb\nc$", "a\nb\nc"),
        ("receiving", r"\bcei", None),
        ("xreceived", r"^received", None),
        ("received x", r"received$", None),
        ("received x", r"\Areceived", None),
        ("received x", r"received\Z", None),
        ("foo bar", r"foo(?! bar)", None),
        ("foo bar", r"(?<=foo )bar", "bar"),
        ("é" * 9, "^é{9}$", "é" * 9),
    ],
)
def test_a_match_does_not_depend_on_where_the_pieces_end(
    small_pieces: None, tmp_path: Path, before: int, line: str, pattern: str, match: str | None
) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("." * before + "\n" + line + "\n" + "-" * 50 + "\n", encoding="utf-8")
    assert find_in_log(log, pattern) == match


def test_a_match_at_the_end_of_the_log_is_found(small_pieces: None, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("." * 95 + "\nthe end")
    assert find_in_log(log, r"the end\Z") == "the end"
    assert find_in_log(log, r"end$") == "end"


def test_an_endless_match_ends_the_search(small_pieces: None, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("start" + "x" * 10_000)
    match = find_in_log(log, r"start[\s\S]*")
    assert match is not None
    assert 40 < len(match) < 100


def test_a_large_log_is_searched_in_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    with log.open("w") as file:
        for _ in range(24):
            file.write(("x" * 1023 + "\n") * 1024)
        file.write("ready\n")
    tracemalloc.start()
    try:
        assert find_in_log(log, "^ready$") == "ready"
        assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
    finally:
        tracemalloc.stop()
