"""Which reduction carries which bucket of DistributedDataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.trace.read import read_trace
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_the_bucket_of_each_reduction_in_backward_is_known(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    parameters = [["a", "float32", [2]], ["b", "float32", [3]]]
    made.line(0, "ddp", 1, d=1, g="0", params=parameters, buckets=[[1, 0]], rebuilt=False)
    made.mark(0, "backward", 2, 4)
    made.call(0, "all_reduce", 3, 3.5, [[0.0] * 5])
    made.line(0, "ddp", 5, d=1, g="0", buckets=[[1], [0]], rebuilt=True)
    for start in (6, 16):
        made.mark(0, "backward", start, start + 8)
        made.call(0, "all_reduce", start + 1, start + 2, [[0.0] * 3])
        made.call(0, "all_reduce", start + 3, start + 4, [[0.0] * 2])
    made.call(0, "all_reduce", 30, 31, [[0.0] * 3])
    calls = read_trace(made.record()).ranks[0].calls
    assert [(call.bucket, call.parameters) for call in calls] == [
        (0, ("b", "a")), (0, ("b",)), (1, ("a",)), (0, ("b",)), (1, ("a",)), (None, ()),
    ]  # fmt: skip
    assert [call.phase for call in calls] == ["backward"] * 5 + [""]


@pytest.mark.parametrize(
    ("hook", "divided"),
    [
        (None, True),
        ("torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook", True),
        ("torch.distributed.algorithms.ddp_comm_hooks.mixed_precision_hooks._reducer_allreduce_and_upcast_hook", False),
        ("__main__.my_hook", False),
        (".", False),
    ],
)
def test_gradients_were_divided_before_unless_a_hook_may_do_otherwise(
    hook: str | None, divided: bool, tmp_path: Path
) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    made.line(0, "ddp", 1, d=1, g="0", params=[["a", "float32", [2]]], buckets=[[0]], rebuilt=False)
    if hook is not None:
        made.line(0, "hook", 1.5, d=1, name=hook)
    made.mark(0, "backward", 2, 6)
    made.call(0, "all_reduce", 3, 3.5, [[0.0] * 2], red="SUM")
    made.call(0, "all_reduce", 4, 4.5, [[0.0] * 3], red="SUM")  # no bucket: nobody knows
    trace = read_trace(made.record())
    assert [call.divided for call in trace.ranks[0].calls] == [divided, False]
    assert not trace.problems
