"""NaN that ranks bring to reductions, from made traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.features.values.findings import find_spoiled_reductions
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_the_first_rank_that_brings_nan_to_a_reduction_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for turn in range(3):
        for rank in range(3):
            bad = turn == 2 or (turn == 1 and rank == 1)
            after: list[object] = ["nan" if turn else 3.0]
            made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, [["nan" if bad else 1.0]], [after], at="train.py:9")
    [found] = find_spoiled_reductions(read_evidence(made.record()))
    assert (found.kind, found.ranks, found.others, found.step) == ("nonfinite", (1,), (0, 2), "all_reduce #2")
    assert told_facts(found) == {"how": "nan", "at": ["train.py:9"]}


def test_infinities_and_other_operations_are_left_alone(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        made.call(rank, "all_reduce", 1, 2, [["inf", 1.0]], [["inf", 2.0]], red="MIN")
        made.call(rank, "broadcast", 3, 4, [["nan"]], [["nan"]], root=0)
    assert find_spoiled_reductions(read_evidence(made.record())) == []


@pytest.mark.parametrize(
    ("red", "result", "told"), [("MAX", 1.0, False), ("MAX", "nan", True), ("MAX", None, True), ("PRODUCT", 1.0, True)]
)
def test_nan_that_a_reduction_drops_is_not_told(tmp_path: Path, red: str, result: object, told: bool) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        end, after = (None, None) if result is None else (2, [[result]])
        made.call(rank, "all_reduce", 1, end, [["nan" if rank else 1.0]], after, red=red, at="train.py:9")
    assert bool(find_spoiled_reductions(read_evidence(made.record()))) is told


def _brought(tmp_path: Path, *steps: list[float]) -> TraceMaker:
    """What each rank brought to each step of a loop."""
    made = TraceMaker(tmp_path / "run", len(steps[0]))
    for turn, values in enumerate(steps):
        for rank, value in enumerate(values):
            made.call(
                rank, "all_reduce", 10 * turn, 10 * turn + 1, [[value]], [[sum(values)]], red="SUM", at="train.py:9"
            )
    return made


def test_a_value_far_from_all_others_names_who_brought_it(tmp_path: Path) -> None:
    made = _brought(tmp_path, [0.5, 0.7, 0.6], [0.4, 0.3, 0.2], [0.3, 0.2, 1.7e38], [5e37, 5e37, 5e37])
    [found] = find_spoiled_reductions(read_evidence(made.record()))
    assert (found.kind, found.ranks, found.step) == ("outlier", (2,), "all_reduce #3")
    assert told_facts(found) == {
        "how": "far",
        "at": ["train.py:9"],
        "value": 1.7e38,
        "rest": 0.3,
        "usual": 0.7,
        "steps": 2,
    }


def test_values_that_grow_on_all_ranks_or_that_began_far_apart_name_nobody(tmp_path: Path) -> None:
    grows = _brought(tmp_path / "1", [0.5, 0.7, 0.6], [0.4, 0.3, 0.2], [3e9, 2e9, 1.7e9])
    apart = _brought(tmp_path / "2", [1e6, 0.7, 0.6], [0.4, 0.3, 0.2], [1.5e9, 0.5, 0.4])
    early = _brought(tmp_path / "3", [0.5, 0.7, 0.6], [0.4, 0.3, 1e12])
    for made in (grows, apart, early):
        assert find_spoiled_reductions(read_evidence(made.record())) == []


def test_one_rank_that_departs_once_from_what_all_always_bring_is_named(tmp_path: Path) -> None:
    same = [[[0.5 + turn, 0.25]] for turn in range(6)]
    made = TraceMaker(tmp_path / "run", 3)
    for turn, values in enumerate(same):
        for rank in range(3):
            mine = [[0.5 + turn, 0.125]] if (turn, rank) == (4, 1) else values
            made.call(rank, "all_reduce", 10 * turn, 10 * turn + 1, mine, [[1.0, 1.0]], red="SUM", at="train.py:9")
    [found] = find_spoiled_reductions(read_evidence(made.record()))
    assert (found.kind, found.ranks, found.step) == ("outlier", (1,), "all_reduce #5")


@pytest.mark.parametrize(("before", "reduced", "line"), [(True, False, 10), (False, False, None), (False, True, 10)])
def test_nan_that_a_message_carries_counts_if_it_is_new_there_or_reaches_a_reduction(
    tmp_path: Path, before: bool, reduced: bool, line: int | None
) -> None:
    """A message may carry NaN on purpose."""
    made = TraceMaker(tmp_path / "run", 2)
    for turn in range(2 if before else 1):
        value = [[1.0]] if before and turn == 0 else [["nan"]]
        made.call(0, "send", 10 * turn + 1, 10 * turn + 2, value, peer=1, tag=0, at="train.py:10")
        made.call(1, "recv", 10 * turn + 1, 10 * turn + 2, (), value, peer=0, tag=0, at="train.py:11")
    if reduced:
        for rank in range(2):
            made.call(rank, "all_reduce", 50, 51, [["nan"]], [["nan"]], red="SUM", at="train.py:20")
    findings = find_spoiled_reductions(read_evidence(made.record()))
    assert [(one.kind, one.ranks, one.lines[0]) for one in findings] == (
        [("nonfinite", (0,), f"train.py:{line}")] if line else []
    )
