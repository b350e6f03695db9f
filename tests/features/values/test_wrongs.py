"""Results that are not what they should be, and of which nobody can be sure."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from lab.features.values.findings import find_unexpected_results
from tests.diagnosis.facts import exited, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 2)


def found(made: TraceMaker) -> list[Finding]:
    return find_unexpected_results(read_evidence(made.record()))


def reduce(made: TraceMaker, results: tuple[float, float], **more: object) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 10, 20, [[1.0]], [[results[rank]]], red="SUM", at="train.py:9", **more)


def wait(made: TraceMaker, begin: float, end: float) -> None:
    for rank in (0, 1):
        made.line(rank, "wait", begin, e=0, at="train.py:12")
        made.line(rank, "wait", end, e=1)


def test_a_wrong_sum_is_told_with_what_it_should_be(made: TraceMaker) -> None:
    reduce(made, (2.0, 7.0))
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.others) == ("wrong_result", (), (1, 0))
    assert told_facts(finding) == {
        "wrong_ranks": [1],
        "first": {"rank": 1, "tensor": 0, "tensors": 1, "element": 0, "reduces": True, "got": 7.0, "expected": 2.0},
        "at": ["train.py:9"],
    }


def test_the_verdict_of_a_run_in_which_nothing_failed_tells_it_and_stays_passed(made: TraceMaker) -> None:
    reduce(made, (2.0, 7.0), **{"async": True})
    wait(made, 15, 21)
    write_events(made, exited(0), exited(1))
    verdict = judge_evidence(read_evidence(made.record()))
    assert verdict.verdict == "passed"
    assert golden(1) in verdict.reason


def test_a_tensor_that_was_changed_before_its_handle_was_waited_for_is_told_with_both_lines(made: TraceMaker) -> None:
    reduce(made, (7.0, 7.0), **{"async": True})
    wait(made, 15, 21)
    [finding] = found(made)
    assert told_facts(finding) == {
        "wrong_ranks": [0, 1],
        "first": {"rank": 0, "tensor": 0, "tensors": 1, "element": 0, "reduces": True, "got": 7.0, "expected": 2.0},
        "at": ["train.py:9"],
        "handles": True,
        "waits_at": ["train.py:12", "train.py:12"],
    }
    assert (finding.kind, finding.lines) == ("changed_before_wait", ("train.py:9", "train.py:12"))


@pytest.mark.parametrize(
    ("via", "waits"),
    [("step", []), ("all_reduce", [(11, 12)]), ("backward", [(30, 40)])],
    ids=["never by the script", "for something else first", "for something else later"],
)
def test_nothing_is_said_of_what_may_have_been_changed_after_the_call_was_done(
    made: TraceMaker, via: str, waits: list[tuple[float, float]]
) -> None:
    reduce(made, (7.0, 7.0), via=via, **{"async": True, "late": 1})
    for begin, end in waits:
        wait(made, begin, end)
    assert found(made) == []


def test_results_in_one_tensor_are_said_to_be_all_alike(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_gather", 1, 2, [[float(rank)]], [[1.0], [1.0]], at="train.py:9")
    [finding] = found(made)
    assert told_facts(finding) == {
        "wrong_ranks": [0, 1],
        "first": {"rank": 0, "tensor": 0, "tensors": 2, "element": 0, "reduces": False, "got": 1.0, "expected": 0.0},
        "at": ["train.py:9"],
        "alike": 2,
    }
    assert told_facts(finding) == {
        "wrong_ranks": [0, 1],
        "first": {"rank": 0, "tensor": 0, "tensors": 2, "element": 0, "reduces": False, "got": 1.0, "expected": 0.0},
        "at": ["train.py:9"],
        "alike": 2,
    }


def test_the_same_in_many_steps_is_told_once(made: TraceMaker) -> None:
    for _ in range(3):
        reduce(made, (2.0, 7.0))
    [finding] = found(made)
    assert told_facts(finding) == {
        "wrong_ranks": [1],
        "first": {"rank": 1, "tensor": 0, "tensors": 1, "element": 0, "reduces": True, "got": 7.0, "expected": 2.0},
        "at": ["train.py:9"],
        "again": 2,
    }


def test_nothing_is_said_where_ranks_did_not_call_the_same(made: TraceMaker) -> None:
    made.call(0, "all_reduce", 1, 2, [[1.0]], [[9.0]], red="SUM")
    made.call(1, "all_reduce", 1, 2, [[1.0]], [[9.0]], red="MAX")
    assert found(made) == []


def test_right_results_are_not_told(made: TraceMaker) -> None:
    reduce(made, (2.0, 2.0))
    write_events(made, exited(0), exited(1))
    evidence = read_evidence(made.record())
    assert find_unexpected_results(evidence) == []
    assert "but" not in judge_evidence(evidence).reason


def test_a_tensor_that_was_changed_and_never_waited_for_is_told(made: TraceMaker) -> None:
    reduce(made, (7.0, 7.0), via="all_reduce", **{"async": True})
    [finding] = found(made)
    assert (finding.kind, finding.lines) == ("changed_before_wait", ("train.py:9",))
    assert told_facts(finding) == {
        "wrong_ranks": [0, 1],
        "first": {"rank": 0, "tensor": 0, "tensors": 1, "element": 0, "reduces": True, "got": 7.0, "expected": 2.0},
        "at": ["train.py:9"],
        "handles": True,
    }


@pytest.mark.parametrize(
    ("red", "got", "wrong"),
    [
        ("SUM", (3.0, 7.0), False),
        ("SUM", (2.9, 7.0), True),
        ("SUM", (3.0, 7.1), True),
        ("AVG", (1.5, 3.5), False),
        ("AVG", (1.4, 3.5), True),
        ("MAX", (2.0, 4.0), False),
        ("MAX", (1.9, 4.0), True),
        ("MIN", (1.0, 3.1), True),
        ("PRODUCT", (0.0, 99.0), False),
    ],
)
def test_a_reduction_of_large_tensors_cannot_leave_what_was_brought(
    made: TraceMaker, red: str, got: tuple[float, float], wrong: bool
) -> None:
    """Rank 0 brings 1 to 3, rank 1 brings 2 to 4."""
    for rank in (0, 1):
        made.call(rank, "all_reduce", 10, None, red=red, at="train.py:9", **{
            "in": [["float32", [999]]], "iv": None, "is": [summary(1.0 + rank, 3.0 + rank)]})  # fmt: skip
        made.line(rank, "end", 20, i=made.indices[rank], os=[summary(*got)])
    assert len(found(made)) == int(wrong)


def summary(least: float, greatest: float) -> dict[str, object]:
    return {"n": 999, "norm": 50.0, "min": least, "max": greatest, "hash": "1", "sampled": 256}


@pytest.mark.parametrize(("changers", "named"), [((1,), (1,)), ((0, 1), ()), ((), ())])
def test_who_alone_changed_a_tensor_before_it_waited_is_named(
    made: TraceMaker, changers: tuple[int, ...], named: tuple[int, ...]
) -> None:
    reduce(made, (7.0, 7.0), **{"async": True})
    for rank in (0, 1):
        since = {"changed": 5_000_000_000 + 9_900_000} if rank in changers else {}
        made.line(rank, "wait", 15, e=0, at="train.py:12", **since)
        made.line(rank, "wait", 21, e=1)
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("changed_before_wait", named)
    assert (golden(1) in finding.sentence) == bool(named)


@pytest.mark.parametrize(("waiting", "named"), [((0, 2), (1,)), ((0, 1, 2), ()), ((1,), ()), ((), ())])
def test_who_alone_did_not_wait_is_named(tmp_path: Path, waiting: tuple[int, ...], named: tuple[int, ...]) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 10, 20, [[1.0]], [[7.0]], red="SUM", at="train.py:9", **{"async": True})
    for rank in waiting:
        made.line(rank, "wait", 15, e=0, at="train.py:12")
        made.line(rank, "wait", 21, e=1)
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("changed_before_wait", named)
    assert (golden(1) in finding.sentence) == bool(named)


def test_who_changed_the_tensor_of_another_call_is_not_named(made: TraceMaker) -> None:
    made.call(1, "broadcast", 5, 6, [[1.0]], [[1.0]], group="1", at="train.py:7", **{"async": True})
    reduce(made, (7.0, 7.0), **{"async": True})
    for rank in (0, 1):
        made.line(rank, "wait", 15, e=0, at="train.py:12", **({"changed": 5_004_900_000} if rank else {}))
        made.line(rank, "wait", 21, e=1)
    [finding] = found(made)
    assert finding.ranks == ()
