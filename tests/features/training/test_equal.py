"""`expect: replicas: equal`: whether what ranks train is the same on all of them, as far as it is on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.features.training.replicas import check_replicas
from lab.record.result import Expectation
from lab.spec.scenario import Tolerance
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def step(made: TraceMaker, norms: list[float | None], *, steps: int = 1) -> None:
    for rank, norm in enumerate(norms):
        made.line(rank, "weights", 10 * steps, o=1, steps=steps, at="train.py:9", sizes=[2, 4], grads=[None, None],
                  norms=[1.0, norm])  # fmt: skip


def module(made: TraceMaker, names: list[list[str]], norms: list[float]) -> None:
    for rank, (own, norm) in enumerate(zip(names, norms, strict=True)):
        parameters = [[name, "float32", [2]] for name in own]
        made.line(rank, "ddp", 1, d=1, g="0", at="train.py:5", params=parameters, buckets=[[0]], rebuilt=False)
        made.line(rank, "norms", 5, d=1, steps=1, norms=[norm] * len(own))


def checked(made: TraceMaker, world_size: int = 3, **tolerance: float) -> Expectation:
    return check_replicas(Tolerance(**tolerance), read_evidence(made.record()), world_size)


def test_replicas_of_an_optimizer_that_are_the_same_meet_it(made: TraceMaker) -> None:
    step(made, [2.0, 2.0, 2.0])
    step(made, [3.0, 3.0, 3.0 + 1e-7], steps=2)
    assert checked(made).met


def test_the_first_difference_is_told_with_step_parameter_and_ranks(made: TraceMaker) -> None:
    step(made, [2.0, 2.0, 2.0])
    step(made, [2.0, 2.5, 2.0], steps=2)
    step(made, [2.0, 2.9, 2.0], steps=4)
    found = checked(made)
    assert not found.met
    assert found.sentence() == (golden(1))


def test_the_tolerance_is_that_of_the_scenario(made: TraceMaker) -> None:
    step(made, [2.0, 2.01, 2.0])
    assert not checked(made).met
    assert checked(made, relative=0.01).met


def test_replicas_of_a_ddp_module_are_named_by_its_parameters(made: TraceMaker) -> None:
    module(made, [["weight"]] * 3, [1.0, 1.0, 4.0])
    assert golden(1) in str(checked(made).got)


def test_another_number_of_parameters_is_a_difference(made: TraceMaker) -> None:
    module(made, [["weight"], ["weight"], ["weight", "bias"]], [1.0, 1.0, 1.0])
    assert golden(1) in str(checked(made).got)


def test_a_rank_that_made_fewer_steps_has_another_replica(made: TraceMaker) -> None:
    step(made, [2.0, 2.0, 2.0])
    step(made, [2.0, 2.0], steps=2)
    assert golden(1) in str(checked(made).got)


def test_what_only_some_ranks_train_is_no_replica(made: TraceMaker) -> None:
    step(made, [2.0, 2.0])
    assert golden(1) in str(checked(made).got)


def test_what_is_not_known_does_not_meet_it(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "barrier", 1, 2)
    assert checked(made).got == golden(1)
    assert checked(made, world_size=4).got == golden(2)
