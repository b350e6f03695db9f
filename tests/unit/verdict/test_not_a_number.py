"""NaN that ranks bring to reductions, from made traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.verdict.evidence import read_evidence
from lab.verdict.not_a_number import find_not_a_number
from tests.unit.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_the_first_rank_that_brings_nan_to_a_reduction_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for turn in range(3):
        for rank in range(3):
            bad = turn == 2 or (turn == 1 and rank == 1)
            after: list[object] = ["nan" if turn else 3.0]
            made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, [["nan" if bad else 1.0]], [after], at="train.py:9")
    [found] = find_not_a_number(read_evidence(made.record()))
    assert (found.kind, found.ranks, found.others, found.step) == ("nonfinite", (1,), (0, 2), "all_reduce #2")
    assert found.sentence == (
        "Rank 1 brought NaN to all_reduce #2 at train.py:9, the first NaN on record; who gets its result gets NaN."
    )


def test_infinities_and_other_operations_are_left_alone(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        made.call(rank, "all_reduce", 1, 2, [["inf", 1.0]], [["inf", 2.0]], red="MIN")
        made.call(rank, "broadcast", 3, 4, [["nan"]], [["nan"]], root=0)
    assert find_not_a_number(read_evidence(made.record())) == []
