"""Ranks that a script starts itself are on record, rank by rank, whatever starts them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from lab.record.read import Record
from lab.trace.read import read_trace
from tests.golden import golden

SCRIPT = "starts_ranks.py"
long = pytest.mark.long
Run = Callable[..., Result]


def recorded(result: Result) -> dict[int, list[str]]:
    """What each rank called, as far as it completed."""
    assert result.path is not None
    trace = read_trace(Record(path=result.path))
    calls = {rank: [call.op for call in of.calls if call.state == "completed"] for rank, of in trace.ranks.items()}
    return {rank: ops for rank, ops in calls.items() if ops}


@pytest.mark.local_first
def test_forked_ranks_are_on_record_and_the_one_that_raised_is_the_culprit(run: Run) -> None:
    result = run(SCRIPT, "raises", "fork", 2, nodes=1)

    assert result.verdict == "failed"
    assert result.reason.startswith(golden(1))
    assert result.culprit is not None
    assert "labnode" not in result.culprit.traceback
    assert recorded(result) == {0: ["all_reduce"], 1: ["all_reduce"]}
    assert [rank.notes for rank in result.ranks] == [{"total": 1}] * 2
    assert [worker.rank for worker in result.parents] == [0]
    assert result.path is not None
    assert judge_evidence(read_evidence(Record(path=result.path))).reason == result.reason


@long
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "program", "torchrun"])
@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_ranks_are_on_record_whatever_starts_them(run: Run, how: str, cold: bool) -> None:
    result = run(SCRIPT, "well", how, 2, nodes=1, cold=cold)

    assert result.passed, result.reason
    assert recorded(result) == {0: ["all_reduce", "barrier"], 1: ["all_reduce", "barrier"]}
    assert [rank.exit_code for rank in result.ranks] == [0, 0]


@long
@pytest.mark.parametrize("how", ["spawn", "program", "torchrun"])
def test_the_rank_that_raised_is_the_culprit_whatever_starts_it(run: Run, how: str) -> None:
    result = run(SCRIPT, "raises", how, 2, nodes=1)

    assert result.reason.startswith(golden(1))


@long
@pytest.mark.parametrize(
    ("does", "said"),
    [("dies", "rank 1 (node0) was killed by SIGKILL"), ("exits", "rank 1 (node0) exited with code 3")],
)
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_how_a_rank_ended_is_known(run: Run, does: str, said: str, how: str) -> None:
    result = run(SCRIPT, does, how, 3, nodes=1)

    assert result.reason in (said, golden(1))  # before Linux 6.15 nobody tells
    assert result.culprit is not None
    assert result.culprit.rank == 1


@long
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_rank_that_hangs_is_told_from_its_stack_and_its_trace(run: Run, how: str) -> None:
    result = run(SCRIPT, "hangs", how, 3, nodes=1, timeout_s=4 if how == "fork" else 20)

    assert result.verdict == "hung"
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert "time.sleep(1000)" in result.reason
    assert golden(1) in result.reason


@long
def test_ranks_of_several_nodes_are_those_of_one_run(run: Run) -> None:
    result = run(SCRIPT, "well", "fork", 2, 28733, nodes=3)

    assert result.passed, result.reason
    assert recorded(result) == {rank: ["all_reduce", "barrier"] for rank in range(6)}
    assert [rank.node for rank in result.ranks] == ["node0", "node0", "node1", "node1", "node2", "node2"]
    assert [rank.notes["total"] for rank in result.ranks] == [15] * 6


@long
def test_a_rank_whose_failure_its_starter_expects_fails_nothing(run: Run) -> None:
    result = run(SCRIPT, "raises", "fork", 2, 28734, nodes=1)

    assert result.passed, result.reason
    assert golden(1) in result.reason
