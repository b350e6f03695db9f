"""Attempts: a launcher that begins the workers anew leaves a whole record of each, and one verdict with the story."""

from __future__ import annotations

import pytest

from lab import Result
from lab.diagnosis.explain import explain_run
from lab.features.launchers.launchers import Torchrun
from lab.record.read import Record
from lab.spec.launching import LAB, Lab, Launching
from lab.spec.scenario import Expect
from tests.engines.conftest import Run, judge_again, trace_of
from tests.golden import golden

pytestmark = pytest.mark.timeout(120)
RAISED = "rank 1 (node1) raised ValueError: not yet at attempts.py:21"


def restarting(most: int, name: str = "torchrun") -> Launching:
    if name == LAB:
        return Launching("lab", Lab(max_restarts=most))
    return Launching("torchrun", Torchrun(max_restarts=most))


def earlier(result: Result, number: int) -> Result:
    """An attempt before the last one, judged once more from its own record."""
    found = result.attempts[number].result
    judge_again(found)
    return found


@pytest.mark.local_first
@pytest.mark.parametrize("launcher", [LAB, pytest.param("torchrun", marks=pytest.mark.long)])
def test_a_rank_that_raises_once_is_begun_anew_and_both_attempts_are_on_record(run: Run, launcher: str) -> None:
    expect = Expect(notes={"total": [4.0, 4.0], "attempt": {1: 1}}, restarts=(1,))
    result = run("attempts.py", "once", launcher=restarting(1, launcher), expect=expect, nodes=2)
    assert result.passed, result.reason
    assert result.reason.startswith(golden(1))
    assert [(one.verdict, one.world_size) for one in result.attempts] == [("failed", 2), ("passed", 2)]
    first = earlier(result, 0)
    assert first.reason == RAISED
    assert "attempt 0 of rank 1" in first.ranks[1].log
    assert "attempt 0 of rank 1" not in result.ranks[1].log
    assert "attempt 1 of rank 1" in result.ranks[1].log
    assert first.ranks[1].notes == {"attempt": 0}
    for attempt in (first, result):
        assert all(trace_of(attempt).ranks[rank].calls for rank in range(2))
    assert result.path is not None
    assert "attempt" in [finding.kind for finding in explain_run(Record(path=result.path)).findings]


@pytest.mark.long
@pytest.mark.parametrize("launcher", [LAB, "torchrun"])
def test_restarts_that_are_used_up_are_told(run: Run, launcher: str) -> None:
    result = run("attempts.py", "always", launcher=restarting(1, launcher))
    assert result.verdict == "failed"
    assert result.reason == (golden(1, RAISED))
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert earlier(result, 0).reason == RAISED


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_rank_that_hangs_after_a_restart_is_found_by_the_lab(run: Run) -> None:
    for timeout_s in (20.0, 80.0):  # longer where the launcher had not begun anew by then
        result = run("attempts.py", "hang", launcher=restarting(3), timeout_s=timeout_s)
        if result.attempts and all("attempt" in rank.notes for rank in result.ranks):
            break
    assert result.verdict == "hung"
    assert result.reason.startswith(golden(1))
    assert golden(2) in result.reason
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert earlier(result, 0).reason == RAISED
