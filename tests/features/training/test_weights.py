"""Weights that ranks train by the same gradients, without DDP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import worth_reading
from lab.features.training.replicas import find_diverged_weights
from lab.record.layout import TRACE
from tests.diagnosis.facts import told_facts
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
GRADIENT = [1.0, 2.0]


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def step(
    made: TraceMaker,
    norms: Sequence[float],
    *,
    steps: int = 1,
    reduced: Sequence[float] = GRADIENT,
    taken: Sequence[float] = GRADIENT,
    red: str = "SUM",
) -> None:
    for rank, norm in enumerate(norms):
        made.call(rank, "all_reduce", 10 * steps, 10 * steps + 1, [[0.1, 0.2]], [reduced], red=red, at="train.py:8")
        made.line(rank, "weights", 10 * steps + 5, o=1, steps=steps, at="train.py:9", sizes=[2],
                  grads=[math.hypot(*taken)], norms=[norm])  # fmt: skip


def found(made: TraceMaker) -> list[Finding]:
    return find_diverged_weights(read_evidence(made.record()))


def test_other_weights_under_the_same_reduced_gradients_are_told(made: TraceMaker) -> None:
    step(made, [1.0, 2.0, 3.0])
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.lines) == ("diverged", (), ("train.py:8", "train.py:9"))
    assert told_facts(finding) == {
        "reduced_at": ["train.py:8"],
        "steps": 1,
        "stepped_at": ["train.py:9"],
        "place": 1,
        "sides": [{"ranks": [0], "what": "1"}, {"ranks": [1], "what": "2"}, {"ranks": [2], "what": "3"}],
    }
    assert worth_reading(made.path / TRACE)


def test_who_differs_from_most_is_named(made: TraceMaker) -> None:
    step(made, [1.0, 1.0, 3.0])
    [finding] = found(made)
    assert (finding.ranks, finding.others, finding.lines) == ((2,), (0, 1), ("train.py:9", "train.py:8"))


def test_a_mean_is_as_good_as_a_sum(made: TraceMaker) -> None:
    step(made, [1.0, 2.0, 3.0], reduced=[3.0, 6.0])
    assert len(found(made)) == 1


@pytest.mark.parametrize(
    "kind", ["not reduced", "another reduction", "all elements alike", "the same weights", "together again"]
)
def test_nothing_is_said_where_weights_may_differ(made: TraceMaker, kind: str) -> None:
    norms = [1.0, 1.0, 1.0] if kind == "the same weights" else [1.0, 2.0, 3.0]
    if kind == "not reduced":
        step(made, norms, reduced=[5.0, 7.0])
    elif kind == "all elements alike":
        step(made, norms, reduced=[1.0, 1.0], taken=[1.0, 1.0])
    else:
        step(made, norms, red="MAX" if kind == "another reduction" else "SUM")
    if kind == "together again":
        step(made, [1.0, 1.0, 1.0], steps=2)
    assert found(made) == []


def test_gradients_of_their_own_let_weights_differ(made: TraceMaker) -> None:
    for rank in range(3):
        gradient = [1.0 + rank, 2.0]
        made.call(rank, "all_reduce", 1, 2, [[0.1, 0.2]], [gradient], red="SUM")
        made.line(rank, "weights", 5, o=1, steps=1, sizes=[2], grads=[math.hypot(*gradient)], norms=[float(rank)])
    assert found(made) == []
    assert not worth_reading(made.path / TRACE)


def test_the_first_step_after_which_they_differ_counts_if_they_differ_to_the_end(made: TraceMaker) -> None:
    step(made, [1.0, 1.0, 1.0])
    step(made, [1.0, 1.0, 3.0], steps=2)
    step(made, [1.0, 1.0, 4.0], steps=4)
    [finding] = found(made)
    assert (finding.ranks, told_facts(finding)["steps"]) == ((2,), 2)
