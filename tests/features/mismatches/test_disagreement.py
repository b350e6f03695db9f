"""What ranks called differently in one step, and what may differ without being wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from lab.features.mismatches.findings import find_disagreements
from tests.diagnosis.facts import exited, stack, stopped, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def found(made: TraceMaker) -> list[Finding]:
    return find_disagreements(read_evidence(made.record()))


def test_the_minority_is_the_odd_one_out(made: TraceMaker) -> None:
    for rank in range(3):
        op, line = ("broadcast", 22) if rank == 1 else ("all_reduce", 25)
        made.call(rank, op, 1, 2, [[1.0]], [[1.0]], at=f"train.py:{line}")
    [finding] = found(made)
    assert told_facts(finding) == {
        "number": 1,
        "odd_sides": [{"ranks": [1], "what": "broadcast", "lines": ["train.py:22"]}],
        "sides": [{"ranks": [0, 2], "what": "all_reduce", "lines": ["train.py:25"]}],
    }
    assert (finding.kind, finding.ranks, finding.others) == ("mismatch", (1,), (0, 2))
    assert finding.lines == ("train.py:22", "train.py:25")


def test_calls_after_the_first_mismatch_are_not_told(made: TraceMaker) -> None:
    for number in range(3):
        for rank in range(3):
            op = "all_reduce" if (rank == 1) == (number % 2 == 0) else "broadcast"
            made.call(rank, op, number, number + 0.5, [[1.0] * (rank + 1)], at="train.py:9")
    assert [finding.step for finding in found(made)] == ["all_reduce/broadcast #1"]


def test_two_ranks_have_no_majority_and_both_are_said(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "two", 2)
    made.call(0, "all_reduce", 1, None, [[1.0]], at="train.py:5")
    made.call(1, "barrier", 1, None, at="train.py:7")
    [finding] = found(made)
    assert finding.ranks == ()
    assert told_facts(finding) == {
        "number": 1,
        "sides": [
            {"ranks": [0], "what": "all_reduce", "lines": ["train.py:5"]},
            {"ranks": [1], "what": "barrier", "lines": ["train.py:7"]},
        ],
    }


def test_of_two_ranks_the_one_that_left_their_rhythm_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "two", 2)
    for turn in range(3):
        for rank in (0, 1):
            if (turn, rank) != (2, 1):
                made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, [[1.0]], at="train.py:5")
            made.call(rank, "broadcast", 10 * turn + 5, 10 * turn + 6, [[1.0]], at="train.py:6")
    [finding] = found(made)
    assert (finding.ranks, finding.lines) == ((1,), ("train.py:6", "train.py:5"))
    assert told_facts(finding) == {
        "number": 5,
        "odd_sides": [{"ranks": [1], "what": "broadcast", "lines": ["train.py:6"]}],
        "sides": [{"ranks": [0], "what": "all_reduce", "lines": ["train.py:5"]}],
        "by_rhythm": True,
    }


CASES: dict[str, tuple[str, str, list[dict[str, Any]], str]] = {
    "dtype": ("all_reduce", "dtype", [{}, {"dtype": "float64"}, {}], "rank 1 passed float64 [2]"),
    "elements": ("all_reduce", "shape", [{}, {"before": [[1.0] * 5]}, {}], "rank 1 passed float32 [5]"),
    "reduction": ("all_reduce", "reduce_op", [{"red": "SUM"}, {"red": "MAX"}, {"red": "SUM"}], "reduced by MAX"),
    "root of broadcast": ("broadcast", "root", [{"root": 0}, {"root": 1}, {"root": 0}], "rank 1 named root 1"),
    "root of reduce": ("reduce", "root", [{"root": 0}, {"root": 2}, {"root": 0}], "rank 1 named root 2"),
}


@pytest.mark.parametrize("case", CASES)
def test_who_differs_and_how_is_said(made: TraceMaker, case: str) -> None:
    op, kind, fields, words = CASES[case]
    for rank, more in enumerate(fields):
        values = {"before": [[1.0, 1.0]], **more}
        made.call(rank, op, 1, 2, values.pop("before"), **{"at": "train.py:9", **values})
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.lines) == (kind, (1,), ("train.py:9",))
    assert words in finding.sentence


def test_uneven_parts_of_all_gather_are_fine_where_receivers_made_room_for_them(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_gather", 1, 2, [[1.0] * (rank + 1)], [[1.0], [1.0] * 2, [1.0] * 3])
    assert found(made) == []


def test_a_part_of_all_gather_that_does_not_fit_is_told(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_gather", 1, 2, [[1.0] * (2 if rank == 1 else 3)], [[1.0] * 3] * 3)
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("shape", (1,))


def test_only_the_source_of_scatter_brings_tensors(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "scatter", 1, 2, [[1.0], [2.0], [3.0]] if rank == 0 else [], [[1.0]], root=0)
    assert found(made) == []


def test_only_the_destination_of_gather_makes_room(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "gather", 1, 2, [[1.0]], [[1.0]] * 3 if rank == 0 else [], root=0)
    assert found(made) == []


@pytest.mark.parametrize(("rows", "fits"), [(3, True), (2, False)])
def test_splits_of_all_to_all_have_to_fit(made: TraceMaker, rows: int, fits: bool) -> None:
    inputs = [[1, 2, 3], [1, 2, rows], [1, 2, 3]]  # rows that each rank gives to each
    for rank in range(3):
        outputs = [rank + 1] * 3
        fields = {"split": [outputs, inputs[rank]]}
        made.call(rank, "all_to_all_single", 1, 2, [[1.0] * sum(inputs[rank])], [[1.0] * sum(outputs)], **fields)
    assert [finding.kind for finding in found(made)] == ([] if fits else ["splits"])


def test_one_misfit_of_splits_is_told_and_names_neither_of_its_ranks(made: TraceMaker) -> None:
    inputs, outputs = [[1, 2, 1], [1, 1, 1], [1, 1, 1]], [[1, 1, 1]] * 3
    for rank in range(3):
        fields = {"split": [outputs[rank], inputs[rank]]}
        made.call(rank, "all_to_all_single", 1, 2, [[1.0] * sum(inputs[rank])], [[1.0] * 3], at="train.py:8", **fields)
    [finding] = found(made)
    assert (finding.ranks, finding.others) == ((), (0, 1, 2))
    assert told_facts(finding) == {
        "sides": [
            {"ranks": [1, 2], "what": "output [1, 1, 1], input [1, 1, 1]"},
            {"ranks": [0], "what": "output [1, 1, 1], input [1, 2, 1]"},
        ],
        "misfits": [{"giver": 0, "taker": 1, "rows": 2, "room": 1}],
        "at": ["train.py:8"],
    }


def test_of_many_misfits_of_splits_the_first_are_told_and_the_rest_counted(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_to_all_single", 1, 2, [[1.0] * 3], [[1.0] * 6], split=[[2, 2, 2], [1, 1, 1]])
    [finding] = found(made)
    assert finding.ranks == ()
    assert told_facts(finding) == {
        "sides": [{"ranks": [0, 1, 2], "what": "output [2, 2, 2], input [1, 1, 1]"}],
        "misfits": [
            {"giver": 0, "taker": 0, "rows": 1, "room": 2},
            {"giver": 0, "taker": 1, "rows": 1, "room": 2},
            {"giver": 0, "taker": 2, "rows": 1, "room": 2},
            {"giver": 1, "taker": 0, "rows": 1, "room": 2},
            {"giver": 1, "taker": 1, "rows": 1, "room": 2},
            {"giver": 1, "taker": 2, "rows": 1, "room": 2},
            {"giver": 2, "taker": 0, "rows": 1, "room": 2},
            {"giver": 2, "taker": 1, "rows": 1, "room": 2},
            {"giver": 2, "taker": 2, "rows": 1, "room": 2},
        ],
        "at": ["train.py:10"],
    }
    assert told_facts(finding) == {
        "sides": [{"ranks": [0, 1, 2], "what": "output [2, 2, 2], input [1, 1, 1]"}],
        "misfits": [
            {"giver": 0, "taker": 0, "rows": 1, "room": 2},
            {"giver": 0, "taker": 1, "rows": 1, "room": 2},
            {"giver": 0, "taker": 2, "rows": 1, "room": 2},
            {"giver": 1, "taker": 0, "rows": 1, "room": 2},
            {"giver": 1, "taker": 1, "rows": 1, "room": 2},
            {"giver": 1, "taker": 2, "rows": 1, "room": 2},
            {"giver": 2, "taker": 0, "rows": 1, "room": 2},
            {"giver": 2, "taker": 1, "rows": 1, "room": 2},
            {"giver": 2, "taker": 2, "rows": 1, "room": 2},
        ],
        "at": ["train.py:10"],
    }


def test_a_message_that_is_longer_than_the_room_for_it(made: TraceMaker) -> None:
    made.call(0, "send", 1, 2, [[1.0] * 4], peer=1, tag=0, at="train.py:5")
    made.call(1, "recv", 1, None, (), [[1.0] * 2], peer=0, tag=0, at="train.py:7")
    [finding] = found(made)
    assert (finding.kind, finding.step, finding.ranks) == ("shape", "send 0 → 1", ())


def test_the_same_difference_in_many_steps_is_told_once(made: TraceMaker) -> None:
    for number in range(4):
        for rank in range(3):
            made.call(rank, "all_reduce", number, number + 0.5, [[1.0]], dtype="float64" if rank == 2 else "float32")
    [finding] = found(made)
    assert told_facts(finding) == {
        "sides": [{"ranks": [0, 1], "what": "float32 [1]"}, {"ranks": [2], "what": "float64 [1]"}],
        "at": ["train.py:10"],
        "again": 3,
    }


@pytest.mark.features
@pytest.mark.parametrize(("got", "told"), [(2.0, True), (3.0, False)])
def test_who_was_served_with_a_wrong_sum_is_told(made: TraceMaker, got: float, told: bool) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1, 2, [[1.0] * 2], [[3.0, got]], red="SUM")
    made.call(1, "all_reduce", 1, None, [[1.0] * 3], red="SUM")
    [finding] = found(made)
    sentence = "Ranks 0 and 2 got wrong values from it: element 1 on rank 0 is 2, but should be 3."
    assert (sentence in finding.sentence) == told


def test_a_line_in_a_function_is_told_with_its_caller_where_the_callers_differ(made: TraceMaker) -> None:
    for rank in range(3):
        sent = [[1.0]] if rank == 0 else [[1.0, 2.0]]
        made.call(rank, "all_reduce", 1, None, sent, at="train.py:5", by="train.py:30" if rank == 0 else "train.py:20")
    [finding] = found(made)
    assert told_facts(finding)["sides"] == [
        {"ranks": [1, 2], "what": "float32 [2]", "lines": ["train.py:5"], "callers": ["train.py:20"]},
        {"ranks": [0], "what": "float32 [1]", "lines": ["train.py:5"], "callers": ["train.py:30"]},
    ]
    assert finding.lines == ("train.py:5", "train.py:30", "train.py:20")
    assert golden(1) in finding.sentence


@pytest.mark.parametrize("rounds", [1, 3])
def test_of_two_ranks_the_one_that_passes_something_new_is_named(tmp_path: Path, rounds: int) -> None:
    """One earlier round shows no rule; and a rank whose sizes always change may pass any."""
    made = TraceMaker(tmp_path / "two", 2)
    for turn in range(rounds):
        for rank in (0, 1):
            made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, [[1.0]], at="train.py:5")
    made.call(0, "all_reduce", 100, None, [[1.0]], at="train.py:5")
    made.call(1, "all_reduce", 100, None, [[1.0, 2.0]], at="train.py:5")
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("shape", (1,) if rounds > 1 else ())


def test_of_two_ranks_whose_sizes_change_none_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "two", 2)
    for turn in range(1, 4):
        for rank in (0, 1):
            made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, [[1.0] * turn], at="train.py:5")
    made.call(0, "all_reduce", 100, None, [[1.0] * 4], at="train.py:5")
    made.call(1, "all_reduce", 100, None, [[1.0] * 5], at="train.py:5")
    assert found(made)[0].ranks == ()


@pytest.mark.parametrize("failed", [False, True])
def test_two_groups_that_break_by_themselves_are_both_reported(tmp_path: Path, failed: bool) -> None:
    made = TraceMaker(tmp_path / "six", 6)
    made.group("1", [0, 1, 2])
    made.group("2", [3, 4, 5])
    for rank in range(6):
        sent = [[1.0] * (2 if rank in (1, 5) else 1)]
        made.call(rank, "all_reduce", 1, None, sent, at="train.py:9", g=str(1 + rank // 3))
    if failed:
        write_events(made, exited(0, None, 5.0, signal="SIGABRT"), *(stopped(rank) for rank in range(1, 6)))
    else:
        timed_out = {"event": "timed out", "time": 1_700_000_008.0, "timeout_s": 8.0}
        stacks = (stack(rank, 9, "all_reduce") for rank in range(6))
        write_events(made, timed_out, *stacks, *map(stopped, range(6)))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert [(one.kind, one.ranks) for one in judgement.findings] == [("shape", (1,)), ("shape", (5,))]
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1
    assert all(one.headline in judgement.reason for one in judgement.findings)


@pytest.mark.parametrize(("handles", "names"), [((1,), True), ((0, 1), False), ((0,), False)])
def test_the_exception_that_a_rank_handles_in_another_call_than_the_others_comes_first(
    made: TraceMaker, handles: tuple[int, ...], names: bool
) -> None:
    """Ranks may handle exceptions and call the same; only the rank whose call differs did it because of one."""
    for rank in range(3):
        if rank in handles:
            made.line(rank, "handled", 0.9, error="KeyError: 'lr'", at="train.py:15")
        op, line = ("barrier", 19) if rank == 1 else ("all_reduce", 13)
        made.call(rank, op, 1, None, [[1.0]], at=f"train.py:{line}")
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    stacks = (stack(n, 19 if n == 1 else 13, "barrier") for n in range(3))
    write_events(made, timed_out, *stacks, *map(stopped, range(3)))
    evidence = read_evidence(made.record(stop=False))
    kinds = [(finding.kind, finding.ranks) for finding in find_disagreements(evidence)]
    assert kinds == [("failed", (1,)), ("mismatch", (1,))][0 if names else 1 :]
    judgement = judge_evidence(evidence)
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1
    if names:
        assert judgement.findings[0].lines[:2] == ("train.py:15", "train.py:19")
        assert golden(1) in judgement.reason


def test_an_exception_that_was_over_before_the_call_is_no_reason_for_it(made: TraceMaker) -> None:
    for rank in range(3):
        if rank == 1:
            made.line(rank, "handled", 0.9, error="KeyError: 'lr'", at="train.py:15")
        made.call(rank, "all_reduce", 1, 2, [[1.0]], at="train.py:13")
        made.call(rank, "barrier" if rank == 1 else "all_reduce", 3, None, [[1.0]], at="train.py:19")
    assert [finding.kind for finding in find_disagreements(read_evidence(made.record(stop=False)))] == ["mismatch"]


@pytest.mark.parametrize(
    ("lines", "end", "ahead", "skipped"),
    [
        ([[5], [9], [5]], None, [1], "train.py:5"),
        ([[9], [5], [9]], None, [1], "train.py:9"),  # the majority decides
        ([[5], [9]], None, [1], "train.py:5"),
        ([[9], [5]], None, [0], "train.py:5"),
        ([[5, 9, 5, 9, 5], [5, 9, 5, 9, 9]], None, [1], "train.py:5"),  # left its loop
        ([[9, 5], [9, 9]], None, None, None),  # two ranks, and no loop
        ([[5, 5], [5, 9], [5, 5]], None, None, None),  # an extra call, which the others never made
        ([[5], [5], [5]], None, None, None),
        ([[5], [9], [5]], 90, None, None),  # the call ended
    ],
)
def test_a_rank_with_another_shape_at_another_line_may_be_one_call_ahead(
    tmp_path: Path, lines: list[list[int]], end: int | None, ahead: list[int] | None, skipped: str | None
) -> None:
    made = TraceMaker(tmp_path / "run", len(lines))
    for rank, ours in enumerate(lines):
        for turn, line in enumerate(ours, start=1):
            last = turn == len(ours)
            size = rank % 2 + 1 if last else 1
            at = f"train.py:{line}"
            made.call(rank, "all_reduce", turn, end if last else turn + 0.5, [[1.0] * size], red="SUM", at=at)
    facts = told_facts(next(one for one in found(made) if one.kind == "shape"))
    assert (facts.get("ahead"), facts.get("skipped")) == (ahead, skipped)
