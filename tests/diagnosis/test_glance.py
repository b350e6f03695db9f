"""Which traces of a run in which nothing failed are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence, worth_reading
from lab.record.layout import TRACE
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 2)


def replicas(made: TraceMaker, names: tuple[str, str] = ("w", "w"), norms: tuple[float, float] = (1.0, 1.0)) -> None:
    for rank in range(2):
        params = [[names[rank], "float32", [2]]]
        made.line(rank, "ddp", 1, d=1, g="0", params=params, buckets=[[0]], rebuilt=False)
        made.line(rank, "norms", 2, d=1, steps=1, norms=[norms[rank]])


def seen(made: TraceMaker) -> bool:
    return worth_reading(made.record().path / TRACE)


def test_calls_that_wait_themselves_and_fill_one_tensor_are_passed_over(made: TraceMaker) -> None:
    for rank in range(2):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[2.0]])
        made.call(rank, "all_gather_into_tensor", 1, 2, [[1.0]], [[1.0, 1.0]])
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[2.0]], via="backward", **{"async": True})
    replicas(made)
    assert not seen(made)


@pytest.mark.parametrize("sign", ["handle", "tensors", "names", "norms"])
def test_each_sign_is_seen(made: TraceMaker, sign: str) -> None:
    if sign == "handle":
        made.call(1, "all_reduce", 1, 2, [[1.0]], [[2.0]], via="all_reduce", **{"async": True})
    elif sign == "tensors":
        made.call(0, "all_gather", 1, 2, [[1.0]], [[1.0], [1.0]])
    elif sign == "names":
        replicas(made, names=("w", "v"))
    else:
        replicas(made, norms=(1.0, 2.0))
    assert seen(made)


def test_what_is_long_is_left_to_explain(made: TraceMaker) -> None:
    made.call(0, "all_gather", 1, 2, [[1.0]], [[1.0], [1.0]], at="x" * (1 << 20))
    assert not seen(made)


def test_a_run_without_traces_has_none_worth_reading(tmp_path: Path) -> None:
    assert not worth_reading(tmp_path / "none")


def test_a_number_that_is_written_with_an_exponent_is_a_sign(made: TraceMaker) -> None:
    for rank in range(2):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[3e36 if rank else 2.0]])
    assert seen(made)


@pytest.mark.parametrize(("ops", "worth"), [(("SUM", "MAX"), True), (("SUM", "SUM"), False), (("MAX", "MAX"), False)])
def test_a_rank_that_reduces_by_another_operation_is_worth_reading(
    tmp_path: Path, ops: tuple[str, str], worth: bool
) -> None:
    made = TraceMaker(tmp_path / "two", 2)
    for rank, red in enumerate(ops):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[2.0]], red="SUM")
        made.call(rank, "all_reduce", 3, 4, [[1.0]], [[2.0]], red=red)
    made.record()
    assert worth_reading(made.path / TRACE) is worth


def test_ddp_replicas_that_differ_are_worth_reading_whatever_their_gradients(tmp_path: Path) -> None:
    """As the recorder writes it: settings before, gradients after the norms."""
    made = TraceMaker(tmp_path / "two", 2)
    for rank in (0, 1):
        settings = {"at": "train.py:9", "set": {"lr": 0.1 + rank}}
        made.line(rank, "norms", 2, **settings, d=1, steps=1, norms=[1.0 + rank], grads=[2.0])
    made.record()
    assert worth_reading(made.path / TRACE)


def test_a_passed_run_says_that_a_rank_reduced_by_another_operation(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "three", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[3.0]], red="MAX" if rank == 1 else "SUM", at="train.py:9")
    evidence = read_evidence(made.record())
    assert [(one.kind, one.ranks) for one in judge_evidence(evidence).findings][:1] == [("reduce_op", (1,))]


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ([("all_reduce", "float32", 1), ("all_reduce", "int32", 1)], "dtype"),
        ([("broadcast", "float32", 1), ("broadcast", "float32", 2)], "shape"),
        ([("all_reduce", "float32", 1), ("broadcast", "float32", 1)], "mismatch"),
        ([("all_reduce", "float32", 1), ("all_reduce", "float32", 1)], None),
    ],
)
def test_a_passed_run_names_what_the_backend_tolerated(
    made: TraceMaker, calls: list[tuple[str, str, int]], kind: str | None
) -> None:
    for rank, (op, dtype, count) in enumerate(calls):
        before = [[1.0] * count] if dtype == "float32" else [[1] * count]
        made.call(rank, op, 1, 2, before, before, dtype=dtype, **({"root": 0} if op == "broadcast" else {"red": "SUM"}))
    evidence = read_evidence(made.record())
    assert worth_reading(made.path / TRACE) is (kind is not None)
    assert [one.kind.value for one in judge_evidence(evidence).findings if one.kind.value != "results"][:1] == [
        kind
    ] * bool(kind)


@pytest.mark.parametrize(("received", "kinds"), [(3, []), (4, ["shape"])])
def test_a_passed_run_names_a_message_of_another_size(made: TraceMaker, received: int, kinds: list[str]) -> None:
    made.call(0, "send", 1, 2, [[1.0] * 3], [], in_place=False, peer=1, tag=0)
    made.call(1, "recv", 1, 2, [], [[1.0] * received], in_place=False, peer=0, tag=0)
    evidence = read_evidence(made.record())
    assert worth_reading(made.path / TRACE) is bool(kinds)
    assert [one.kind.value for one in judge_evidence(evidence).findings] == kinds
