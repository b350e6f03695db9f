"""Whose the misfits of splits are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.values.expected import find_clashes
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("takes", "gives", "odd", "misfits"),
    [
        ([[1, 1, 1], [2, 1, 1], [1, 1, 1]], [[1, 2, 1], [1, 1, 1], [1, 1, 1]], None, 0),
        ([[1, 1, 1]] * 3, [[1, 2, 1], [1, 1, 1], [1, 1, 1]], (), 1),  # of one pair nobody can be told
        ([[1, 1, 1], [3, 1, 3], [1, 1, 1]], [[1, 1, 1]] * 3, (1,), 2),  # the only one in both
        ([[1, 1, 1], [1, 2, 1], [1, 1, 1]], [[1, 1, 1]] * 3, (1,), 1),  # at odds with itself
        ([[1, 2, 1], [2, 2, 1], [1, 1, 1]], [[1, 1, 1]] * 3, (1,), 3),
        ([[1, 2, 1], [1, 1, 2], [2, 1, 1]], [[1, 1, 1]] * 3, (), 3),
        ([[1, 2, 1]] * 3, [[1, 1, 1]] * 3, (1,), 3),  # though all have the same splits
    ],
)
def test_who_is_in_every_misfit_of_splits_or_alone_at_odds_with_itself_is_odd(
    tmp_path: Path, takes: list[list[int]], gives: list[list[int]], odd: tuple[int, ...] | None, misfits: int
) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        fields = {"split": [takes[rank], gives[rank]]}
        given, taken = [1.0] * sum(gives[rank]), [1.0] * sum(takes[rank])
        made.call(rank, "all_to_all_single", 1, 2, [given], [taken], **fields)
    found = find_clashes(match_steps(read_trace(made.record())))
    assert [(one.kind, one.deviating_ranks, len(one.misfits)) for one in found] == (
        [] if odd is None else [("splits", odd, misfits)]
    )


@pytest.mark.parametrize(("sizes", "clashing"), [((1, 2), [2]), ((1, 1), []), ((2, 2), [])])
def test_a_receive_from_any_rank_that_failed_is_compared_with_the_only_message_that_does_not_fit(
    tmp_path: Path, sizes: tuple[int, int], clashing: list[int]
) -> None:
    """Gloo aborts the receiver, and no trace shows whose message it was."""
    made = TraceMaker(tmp_path / "run", 3)
    made.call(0, "recv", 1, None, (), [[0.0]], peer=-1, tag=0, at="train.py:9")
    for rank, size in zip((1, 2), sizes, strict=True):
        made.call(rank, "send", 1, 2, [[1.0] * size], peer=0, tag=0, at="train.py:12")
    clashes = find_clashes(match_steps(read_trace(made.record(stop=False))))
    assert [(clash.kind, clash.deviating_ranks, {*clash.step.calls}) for clash in clashes] == [
        ("shape", (), {0, rank}) for rank in clashing
    ]


@pytest.mark.parametrize(("sizes", "deviating"), [((3, 2, 2), (0,)), ((3, 1, 4), ())])
def test_a_majority_that_disagrees_later_names_nobody(
    tmp_path: Path, sizes: tuple[int, ...], deviating: tuple[int, ...]
) -> None:
    """As where each rank has its tensors in an order of its own."""
    made = TraceMaker(tmp_path / "run", 3)
    for rank, (first, second) in enumerate(zip((1, 5, 5), sizes, strict=True)):
        made.call(rank, "all_reduce", 1, 2, [[1.0] * first])
        made.call(rank, "all_reduce", 3, 4, [[1.0] * second])
    first, _ = find_clashes(match_steps(read_trace(made.record())))
    assert (first.kind, first.deviating_ranks) == ("shape", deviating)
