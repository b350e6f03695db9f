"""Calls that a rank left out, or made once more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.features.mismatches.findings import find_offset_ranks
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def found(folder: Path, lines: Sequence[Sequence[int]]) -> list[Finding]:
    """Ranks that called all_reduce from these lines, the last of which never ended."""
    made = TraceMaker(folder / "run", len(lines))
    for rank, of_rank in enumerate(lines):
        for number, line in enumerate(of_rank):
            last = number + 1 == max(map(len, lines))
            made.call(
                rank, "all_reduce", 10 * number, None if last else 10 * number + 1, [[1.0]], at=f"train.py:{line}"
            )
    return find_offset_ranks(read_evidence(made.record()))


def test_a_rank_that_left_a_call_out_is_told_with_the_round(tmp_path: Path) -> None:
    body = [24, 26, 28]
    others = body * 5
    [finding] = found(tmp_path, [others, body * 3 + [26, 28] + body, others])
    assert (finding.kind, finding.ranks, finding.others) == ("slipped", (1,), (0, 2))
    assert told_facts(finding) == {
        "calls": 1,
        "call": {"rank": 0, "name": "all_reduce", "source": "train.py:24"},
        "turn": 4,
        "met_off": "all_reduce #10",
    }


def test_a_rank_that_called_once_more_is_behind(tmp_path: Path) -> None:
    others = [5, 6, 7] * 4
    [finding] = found(tmp_path, [others, others, [5, 6, 7, 6, 5, 6, 7, 5, 6, 7, 5, 6]])
    assert finding.ranks == (2,)
    assert told_facts(finding) == {
        "calls": -1,
        "call": {"rank": 2, "name": "all_reduce", "source": "train.py:6"},
        "turn": 2,
        "met_off": "all_reduce #4",
    }
    assert told_facts(finding) == {
        "calls": -1,
        "call": {"rank": 2, "name": "all_reduce", "source": "train.py:6"},
        "turn": 2,
        "met_off": "all_reduce #4",
    }


def test_a_whole_round_left_out_is_several_calls(tmp_path: Path) -> None:
    others = [3, 5, 6, 5, 6, 9, 3, 5, 6]
    [finding] = found(tmp_path, [others, others, [3, 5, 6, 9, 3, 5, 6]])
    assert finding.ranks == (2,)
    assert told_facts(finding) == {
        "calls": 2,
        "call": {"rank": 0, "name": "all_reduce", "source": "train.py:5"},
        "turn": 2,
        "met_off": "all_reduce #4",
    }


@pytest.mark.parametrize(
    "lines",
    [
        [[5, 6] * 4, [5, 6] * 3, [5, 6] * 2],
        [[5, 7, 7] * 2, [7, 5, 7] * 2, [7, 7, 5] * 2],
        [[5] * 6, [7] * 6, [7] * 6],
        [[1, 2, 3, 4], [1, 9, 8, 7], [1, 2, 3, 4]],
    ],
    ids=["only slower", "a source in turn", "a branch of its own", "something else altogether"],
)
def test_what_is_no_slip(tmp_path: Path, lines: list[list[int]]) -> None:
    assert found(tmp_path, lines) == []


def halo(folder: Path, ranks: int, without: tuple[int, int], rounds: int = 5) -> list[Finding]:
    """Ranks in a ring that each receive from the one before and send to the next, but one in one round."""
    made = TraceMaker(folder / "run", ranks)
    for rank in range(ranks):
        for turn in range(rounds):
            lost = turn == rounds - 1 and rank == (without[0] + 1) % ranks
            fields = {"tag": 0, "at": "train.py:7"}
            made.call(rank, "recv", 10 * turn, None if lost else 10 * turn + 1, (), [[1.0]],
                      peer=(rank - 1) % ranks, **fields)  # fmt: skip
            if (rank, turn) != without:
                made.call(rank, "send", 10 * turn, 10 * turn + 1, [[1.0]], peer=(rank + 1) % ranks, **fields)
    return find_offset_ranks(read_evidence(made.record()))


def test_a_message_left_out_of_the_loop_of_all_is_told_without_a_step_where_they_met(tmp_path: Path) -> None:
    [finding] = halo(tmp_path, 3, (2, 3))
    assert (finding.kind, finding.ranks, finding.others) == ("slipped", (2,), (0, 1))
    assert told_facts(finding) == {"calls": 1, "call": {"rank": 0, "name": "send", "source": "train.py:7"}, "turn": 4}


@pytest.mark.parametrize(
    ("ranks", "without"), [(2, (1, 3)), (3, (2, 1))], ids=["two ranks", "before the loop is known"]
)
def test_what_is_no_slip_out_of_the_loop_of_all(tmp_path: Path, ranks: int, without: tuple[int, int]) -> None:
    assert halo(tmp_path, ranks, without) == []
