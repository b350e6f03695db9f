"""Reductions to which all ranks brought the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.features.values.findings import find_same_values
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def reduce(made: TraceMaker, line: int, *turns: list[list[Any]], dtype: str = "float32", red: str = "SUM") -> None:
    """A reduction for each turn, with what each rank brought."""
    for number, of_ranks in enumerate(turns):
        for rank, values in enumerate(of_ranks):
            now = 100 * line + 10 * number
            made.call(rank, "all_reduce", now, now + 1, [values], dtype=dtype, red=red, at=f"train.py:{line}")


def found(made: TraceMaker) -> list[Finding]:
    return find_same_values(read_evidence(made.record()))


def test_the_same_from_all_ranks_every_time_gets_a_hint_that_names_nobody(made: TraceMaker) -> None:
    reduce(made, 9, [[0.5, 0.25]] * 3, [[0.125, 0.75]] * 3)
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.lines) == ("same_values", (), ("train.py:9",))
    assert told_facts(finding) == {"steps": 2, "op": "all_reduce", "at": ["train.py:9"]}
    assert told_facts(finding) == {"steps": 2, "op": "all_reduce", "at": ["train.py:9"]}


def test_what_was_reduced_before_is_told_where_other_reductions_differ(made: TraceMaker) -> None:
    reduce(made, 9, *([[0.5, rank + turn + 0.25] for rank in range(3)] for turn in range(2)))
    reduce(made, 12, [[0.5, 0.25]] * 3, [[0.125, 0.75]] * 3)
    [finding] = found(made)
    assert finding.lines == ("train.py:12",)
    assert told_facts(finding) == {"steps": 2, "op": "all_reduce", "at": ["train.py:12"], "others_differ": True}


@pytest.mark.parametrize(
    ("turns", "more"),
    [
        ([[[0.5, 0.25]] * 3], {}),
        ([[[1.0, 1.0]] * 3] * 4, {}),
        ([[[3.0, 8.0]] * 3, [[4.0, 8.0]] * 3], {}),
        ([[[0.5, 0.25]] * 3] * 4, {}),
        ([[[1, 2]] * 3, [[2, 3]] * 3], {"dtype": "int64"}),
        ([[[0.5, 0.25]] * 3, [[0.125, 0.75]] * 3], {"red": "MAX"}),
        ([[[0.5, 0.25]] * 3, [[0.5, 0.1], [0.5, 0.2], [0.5, 0.3]]], {}),
        ([[[0.5, [0.25, 1.5]]] * 3, [[0.125, [0.75, 0.5]]] * 3], {}),
        ([[["nan", "inf"]] * 3, [["nan", "nan"]] * 3], {}),
    ],
    ids=[
        "once",
        "ones",
        "counts",
        "always one thing",
        "integers",
        "a maximum",
        "not every time",
        "damaged",
        "no numbers",
    ],
)
def test_what_says_nothing(made: TraceMaker, turns: list[list[list[Any]]], more: dict[str, str]) -> None:
    reduce(made, 9, *turns, **more)
    assert found(made) == []
