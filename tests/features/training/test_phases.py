"""What ranks did a different number of times, and what may differ without being told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.features.training.findings import TrainingKind, count_phases
from tests.diagnosis.facts import hang, stack, told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


class Training:
    """Ranks with a DDP module each."""

    def __init__(self, folder: Path, ranks: int = 3) -> None:
        self.made = TraceMaker(folder / "run", ranks)
        self.now = dict.fromkeys(range(ranks), 10.0)
        for rank in range(ranks):
            self.made.line(rank, "ddp", 1, d=1, g="0", params=[["w", "float32", [4]]], buckets=[[0]], rebuilt=False)

    def run(self, rank: int, phases: str, *, ended: bool = True) -> None:
        """`f` a forward, `b` a backward with an exchange, `q` one without, `s` a step, `c` a checkpoint's backward."""
        for number, phase in enumerate(phases):
            now = self.now[rank]
            self.now[rank] += 10
            name = {"f": "forward", "s": "step"}.get(phase, "backward")
            line = {"f": 4, "s": 7}.get(phase, 5)
            done = ended or number + 1 < len(phases)
            self.made.line(rank, "mark", now, n=name, e=0, at=f"train.py:{line}")
            if phase == "b":
                self.made.call(rank, "all_reduce", now + 1, now + 2 if done else None, [[1.0] * 4], red="SUM",
                               via="backward", **{"async": True})  # fmt: skip
            if phase == "c":
                self.made.mark(rank, "forward", now + 1, now + 2)
                self.made.mark(rank, "backward", now + 3, now + 4)
            if done:
                self.made.line(rank, "mark", now + 9, n=name, e=1)

    def found(self) -> list[Finding]:
        return [*count_phases(read_evidence(self.made.record()))]


@pytest.fixture
def three(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_forward_that_no_backward_followed_is_told_with_its_number(three: Training) -> None:
    for rank in (0, 1):
        three.run(rank, "fbs" * 6)
    three.run(2, "fbs" * 4 + "ffbs")
    [found] = three.found()
    assert (found.kind, found.ranks, found.others) == ("counts", (2,), (0, 1))
    assert told_facts(found) == {
        "phase": "forward",
        "number": 5,
        "did": False,
        "first": [2],
        "second": [0, 1],
        "forwards": {"2": 6, "0": 6, "1": 6},
        "backwards": {"2": 5, "0": 6, "1": 6},
    }


def test_gradients_that_were_exchanged_less_often_are_counted(three: Training) -> None:
    for rank in (0, 2):
        three.run(rank, "fqfbs" * 5 + "fqfb", ended=False)
    three.run(1, "fqfqfbs" * 4)
    [found] = three.found()
    assert found.ranks == (1,)
    assert told_facts(found) == {
        "phase": "backward",
        "number": 2,
        "did": False,
        "first": [1],
        "second": [0, 2],
        "forwards": {"1": 12, "0": 12, "2": 12},
        "backwards": {"1": 12, "0": 12, "2": 12},
        "exchanged": {"1": 4, "0": 6, "2": 6},
    }


@pytest.mark.parametrize("phases", ["fbs" * 4, "fqfqfbs" * 3, "fbs" * 3 + "fff", "ffbsfb", "fcs" * 3, "f", ""])
def test_what_all_ranks_do_is_not_told_however_far_each_came(three: Training, phases: str) -> None:
    for rank, until in enumerate((len(phases), len(phases) * 2 // 3, len(phases) // 3)):
        three.run(rank, phases[:until], ended=rank == 0)
    assert three.found() == []


def test_of_two_ranks_the_one_that_left_its_habit_is_named(tmp_path: Path) -> None:
    two = Training(tmp_path, 2)
    two.run(0, "fbs" * 6)
    two.run(1, "fbs" * 3 + "ffbsfbs")
    [found] = two.found()
    assert found.ranks == (1,)
    assert told_facts(found) == {
        "phase": "forward",
        "number": 4,
        "did": False,
        "first": [1],
        "second": [0],
        "forwards": {"1": 6, "0": 6},
        "backwards": {"1": 5, "0": 6},
    }


def test_two_ranks_of_different_habits_are_told_and_neither_is_named(tmp_path: Path) -> None:
    two = Training(tmp_path, 2)
    two.run(0, "fqfbs" * 6)
    two.run(1, "fqfqfbs" * 4)
    [found] = two.found()
    assert (found.ranks, found.others) == ((), (0, 1))
    assert told_facts(found) == {
        "phase": "backward",
        "number": 2,
        "did": True,
        "first": [0],
        "second": [1],
        "forwards": {"0": 12, "1": 12},
        "backwards": {"0": 12, "1": 12},
        "exchanged": {"0": 6, "1": 4},
    }


def test_under_join_ranks_with_fewer_batches_are_not_named(three: Training) -> None:
    for rank in range(3):
        three.run(rank, "fqfqfbs" * (2 - (rank == 1)) + "fbs" * 3, ended=False)
    assert [found.ranks for found in three.found()] == [(1,)]
    three.made.call(1, "all_reduce", 9000, 9001, [[1.0]], via="Join.__exit__")
    assert three.found() == []


@pytest.mark.parametrize(("fewer", "named"), [(1, []), (2, [(2,)])])
def test_other_counts_than_those_of_the_rank_that_is_missing_are_not_told(
    three: Training, fewer: int, named: list[tuple[int, ...]]
) -> None:
    """Ranks may legally exchange gradients less often, as in uneven accumulation."""
    for rank in range(3):
        three.run(rank, "fqfqfbs" * (2 - (rank == fewer)) + "fbs" * 3)
    for rank in (0, 1):
        three.made.call(rank, "barrier", 1000, None, group="1", at="train.py:9")
    three.made.group("1", [0, 1, 2], 0.5)
    hang(three.made, stack(0, 9, "barrier"), stack(1, 9, "barrier"), stack(2, 30))
    causes = find_causes(read_evidence(three.made.record(stop=False)))
    assert [one.ranks for one in causes if one.kind is TrainingKind.COUNTS] == named
