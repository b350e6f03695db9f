"""Who broke a ring of ranks that wait for each other, because it left its own loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from tests.diagnosis.facts import hang, stack, told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    """Three rounds, each of a reduction of ranks 0 and 1, one of ranks 1 and 2, and a barrier of all."""
    made = TraceMaker(tmp_path / "run", 3)
    made.group("1", [0, 1])
    made.group("2", [1, 2])
    for turn in range(3):
        for rank in range(3):
            second(made, rank, 10 * turn + 1, 10 * turn + 2)
            first(made, rank, 10 * turn + 3, 10 * turn + 4)
            made.call(rank, "barrier", 10 * turn + 5, 10 * turn + 6, at="train.py:9")
    return made


def first(made: TraceMaker, rank: int, begin: float, end: float | None) -> None:
    if rank < 2:
        made.call(rank, "all_reduce", begin, end, [[1.0]], group="1", at="train.py:8")


def second(made: TraceMaker, rank: int, begin: float, end: float | None) -> None:
    if rank > 0:
        made.call(rank, "all_reduce", begin, end, [[1.0]], group="2", at="train.py:7")


def causes(made: TraceMaker, lines: tuple[int, int, int]) -> list[Finding]:
    hang(made, *(stack(rank, line, "all_reduce") for rank, line in enumerate(lines)))
    return find_causes(read_evidence(made.record(stop=False)))


def test_who_waits_elsewhere_than_its_loop_would_have_gone_is_named(made: TraceMaker) -> None:
    for rank in (1, 2):
        second(made, rank, 50, 51)
        made.call(rank, "barrier", 1000, None, at=f"train.py:{6 if rank == 1 else 9}")
    first(made, 0, 1000, None)
    found = causes(made, (8, 6, 9))[0]
    assert (found.kind, found.ranks, found.others) == ("deadlock", (1,), (0,))
    assert told_facts(found) == {
        "cycle": [0, 1],
        "wait": {"rank": 1, "name": "barrier #4", "source": "train.py:6"},
        "usual": {"rank": 1, "name": "all_reduce", "source": "train.py:8", "group": "[0, 1]"},
    }


def test_where_several_left_their_loops_none_is_named_for_it(made: TraceMaker) -> None:
    first(made, 0, 1000, None)
    for rank in (1, 2):
        second(made, rank, 50, 51)
        made.call(rank, "barrier", 1000, None, at="train.py:6")
    assert not any(found.kind == "deadlock" and found.ranks for found in causes(made, (8, 6, 6)))


def message(made: TraceMaker, source: int, target: int, at_ms: float) -> None:
    made.call(source, "send", at_ms, at_ms + 1, [[1.0]], peer=target, tag=0, at=f"train.py:{source}")
    made.call(target, "recv", at_ms, at_ms + 1, (), [[1.0]], peer=source, tag=0, at=f"train.py:{target + 5}")


def test_who_sends_to_another_rank_than_in_the_rounds_before_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "messages", 3)
    for turn in range(3):
        message(made, 0, 1, 10 * turn)
        message(made, 1, 2, 10 * turn + 2)
        if turn < 2:
            message(made, 2, 1, 10 * turn + 4)
            message(made, 1, 0, 10 * turn + 6)
    made.call(2, "send", 1000, None, [[1.0]], peer=0, tag=0, at="train.py:2")
    for rank in (0, 1):
        made.call(rank, "recv", 1000, None, (), [[1.0]], peer=rank + 1, tag=0, at=f"train.py:{rank + 5}")
    found = causes(made, (5, 6, 2))[0]
    assert (found.kind, found.ranks) == ("deadlock", (2,))
    assert told_facts(found) == {
        "cycle": [0, 1, 2],
        "wait": {"rank": 2, "name": "send", "source": "train.py:2", "direction": "to", "peer": 0},
        "usual": {"rank": 2, "name": "send", "source": "train.py:2", "direction": "to", "peer": 1},
    }
    assert told_facts(found) == {
        "cycle": [0, 1, 2],
        "wait": {"rank": 2, "name": "send", "source": "train.py:2", "direction": "to", "peer": 0},
        "usual": {"rank": 2, "name": "send", "source": "train.py:2", "direction": "to", "peer": 1},
    }


@pytest.mark.parametrize("left_out", [True, False])
def test_who_left_out_the_first_call_of_its_loop_and_stayed_in_it_is_named(tmp_path: Path, left_out: bool) -> None:
    """A call that is not of the loop may follow its last round."""
    made = TraceMaker(tmp_path / "four", 4)
    made.group("1", [0, 1])
    made.group("2", [2, 3])
    for turn in range(3):
        for rank in range(4):
            begin, last, skips = 10 * turn + 1.0, turn == 2, turn == 2 and rank == 3
            if not skips:
                end = None if last and rank == 2 else begin + 1
                made.call(rank, "all_reduce", begin, end, [[1.0]], group=str(1 + rank // 2), at="train.py:7")
            if not (last and rank == 2):
                line = 12 if skips and not left_out else 9
                made.call(rank, "barrier", begin + 2, None if last else begin + 3, at=f"train.py:{line}")
    hang(made, *(stack(rank, 7 if rank == 2 else 9, "barrier") for rank in range(4)))
    found = find_causes(read_evidence(made.record(stop=False)))[0]
    assert ((found.kind, found.ranks) == ("deadlock", (3,))) is left_out
