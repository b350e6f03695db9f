"""What came of cases, added up; and how often repeated ones failed, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.features.suite.cases import compute_rates, mask_varying
from tests.features.suite.cases import attempt, outcome, suite
from tests.golden import golden

FAILED = attempt("failed", "rank 1 raised")


@pytest.mark.parametrize(
    ("attempts", "status", "exit_code"),
    [
        ([], "skipped", 0),
        ([attempt()], "passed", 0),
        ([FAILED], "failed", 1),
        ([FAILED, attempt()], "flaky", 0),
        ([FAILED, attempt("hung")], "hung", 4),
        ([FAILED, FAILED, attempt()], "flaky", 0),
    ],
)
def test_the_status_of_a_case(attempts, status, exit_code):
    found = outcome(*attempts, skipped="why" if not attempts else "")
    assert (found.status, found.exit_code) == (status, exit_code)
    assert found.good == (status in ("passed", "skipped"))


def test_a_flaky_case_says_why_it_failed_before():
    assert outcome(FAILED, attempt("passed", "fine")).reason == golden(1)


@pytest.mark.parametrize(
    ("outcomes", "more", "code"),
    [
        ([outcome(attempt())], {}, 0),
        ([outcome(FAILED, attempt()), outcome(skipped="why")], {}, 0),
        ([outcome(FAILED), outcome(attempt("hung")), outcome(attempt())], {}, 4),
        ([outcome(attempt("error", exit_code=2)), outcome(FAILED)], {}, 2),
        ([outcome(attempt("hung"))], {"stop_code": 130, "stopped": "interrupted"}, 130),
        ([], {"stop_code": 130}, 130),
    ],
)
def test_the_exit_code_of_a_suite_is_the_worst(outcomes, more, code):
    assert suite(*outcomes, **more).exit_code == code


def test_a_suite_counts_what_came_and_what_did_not_run():
    found = suite(outcome(attempt()), outcome(FAILED), outcome(FAILED, attempt()), outcome(skipped="x"), planned=6)
    assert found.counts == {"passed": 1, "flaky": 1, "failed": 1, "skipped": 1}
    assert found.not_run == 2
    assert [one.status for one in found.bad] == ["failed", "flaky"]


def test_outcomes_and_the_summary_are_json(tmp_path: Path):
    one = outcome(attempt("failed", "r", path=tmp_path, run="x"), attempt(path=tmp_path), seed=3, repetitions=2)
    data = json.loads(json.dumps(one.to_json()))
    assert (data["kind"], data["id"], data["status"], data["seed"]) == ("outcome", "train #1", "flaky", 3)
    assert [each["verdict"] for each in data["attempts"]] == ["failed", "passed"]
    assert data["record"] == str(tmp_path)
    summary = json.loads(json.dumps(suite(one, seed=3).to_json()))
    assert (summary["kind"], summary["counts"], summary["exit_code"]) == ("summary", {"flaky": 1}, 0)
    assert summary["rates"][0]["kinds"][0]["seeds"] == [3]


# -- flakiness


def repeated(*attempts):
    return [
        outcome(one, repetition=number, repetitions=len(attempts), seed=100 + number)
        for number, one in enumerate(attempts, start=1)
    ]


def test_failures_that_differ_only_in_measured_numbers_are_of_one_kind_and_the_first_has_its_record(tmp_path: Path):
    found = repeated(
        attempt(),
        attempt("failed", "rank 1 raised ValueError after 1.5 s: 3.25 of 12 MB at 0x7f12", path=tmp_path / "first"),
        attempt("hung", "rank 2 did not come to barrier within 60 s"),
        attempt("failed", "rank 1 raised ValueError after 822 ms: 0.1e-5 of 1 MB at 0xffff", path=tmp_path / "second"),
        attempt("failed", "rank 2 raised ValueError after 1.5 s: 3.25 of 12 MB at 0x7f12"),
    )
    (rate,) = compute_rates(found)
    assert (rate.name, rate.ran, rate.failed) == ("train", 5, 4)
    assert [(kind.status, kind.count, kind.seeds) for kind in rate.kinds] == [
        ("failed", 2, (102, 104)), ("hung", 1, (103,)), ("failed", 1, (105,)),
    ]  # fmt: skip
    assert rate.kinds[0].record == str(tmp_path / "first")
    assert "1.5 s" in rate.kinds[0].reason


def test_what_always_comes_to_the_same_end_is_of_one_kind():
    assert [kind.count for kind in compute_rates(repeated(FAILED, FAILED))[0].kinds] == [2]
    assert compute_rates(repeated(attempt(), attempt()))[0].kinds == ()
    assert compute_rates([outcome(skipped="x")]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 1 left", "rank 2 left"),
        ("at train.py:31", "at train.py:32"),
        ("all_reduce #3", "all_reduce #4"),
        ("exit code 1", "exit code 2"),
    ],
)
def test_ranks_lines_counts_and_codes_tell_kinds_apart(one: str, other: str):
    assert mask_varying(one) != mask_varying(other)
