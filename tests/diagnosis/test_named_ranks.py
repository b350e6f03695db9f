"""Ranks that the text of an error names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.errors import find_named_ranks
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from tests.diagnosis.facts import raised, told_facts, write_events
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("error", "ranks"),
    [
        ("CheckpointException ranks:dict_keys([2])\nTraceback (most recent call last): (RANK 2)", {2}),
        ("RuntimeError: setup failed on {1: \"KeyError: 'missing'\"}", {1}),
        ("RuntimeError: ranks [1, 3] have no data", {1, 3}),
        ("ValueError: rank=2: the loss is nan", {2}),
        ("[rank 1] no such file", {1}),
        ("AssertionError: weights differ from rank 0", set()),
        ("AssertionError: rank 0 has 1.0, rank 1 has 2.0", set()),
        ("RuntimeError: {0: ValueError('x'), 1: KeyError('y')}", set()),
        ("TimeoutError: 3 ranks are missing", set()),
        ("ValueError: frankfurt 7", set()),
    ],
)
def test_one_rank_or_one_list_of_ranks_is_named(error: str, ranks: set[int]) -> None:
    assert find_named_ranks(error) == ranks


@pytest.mark.parametrize(
    ("text", "culprit"), [("broken on rank 2", 2), ("broken on rank 7", 0), ("broken on ranks [0, 1, 2]", 0)]
)
def test_who_is_named_by_the_error_of_all_is_responsible(tmp_path: Path, text: str, culprit: int) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    write_events(made, *(raised(rank, f"RuntimeError: {text}", 9, 5.0 + rank / 10) for rank in range(3)))
    judgement = judge_evidence(read_evidence(made.record()))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == culprit


def test_ranks_that_each_name_themselves_failed_alike(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    text = "RuntimeError: Parameter indices which did not receive grad for rank {}: 4 5"
    write_events(made, *(raised(rank, text.format(rank), 9, 5.0 - rank / 10) for rank in range(3)))
    judgement = judge_evidence(read_evidence(made.record()))
    [finding] = judgement.findings
    assert judgement.culprit is not None
    assert (judgement.culprit.rank, told_facts(finding)["alike"]) == (2, [0, 1])
    assert "names" not in judgement.reason
