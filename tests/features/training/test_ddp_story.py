"""What DDP sent and why, from traces like those of torch 2.13."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.features.training.ddp import build_ddp_story, find_modules
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
NAMES = ["net1.weight", "net1.bias", "net2.weight", "net2.bias"]
SIZES = [40, 10, 20, 2]


class Training:
    """Two ranks with a DDP module of four parameters."""

    def __init__(self, folder: Path) -> None:
        self.made = TraceMaker(folder / "run", 2)
        self.now = 0.0

    def call(self, op: str, count: int, via: str, *, dtype: str = "float32", took: float = 1.0, **more: object) -> None:
        for rank in (0, 1):
            values = [[0.0] * count]
            after = values * 2 if op == "all_gather" else values
            self.made.call(rank, op, self.now, self.now + took, values, after, dtype=dtype, via=via,
                           at="train.py:20", **{"async": True, **more})  # fmt: skip
        self.now += took

    def mark(self, name: str, until: float, begin: float) -> None:
        for rank in (0, 1):
            self.made.mark(rank, name, begin, until)

    def construct(self, buffers: int = 0) -> None:
        begin, via = self.now, "DistributedDataParallel.__init__"
        self.now += 0.1
        self.call("all_gather", 1, via, dtype="int64")
        self.call("broadcast", 12, via, dtype="int64", root=0)
        self.call("broadcast", sum(SIZES) + buffers, via, root=0)
        self.now += 0.1
        self.mark("DDP()", self.now, begin)
        self.layout([[0, 1, 2, 3]], rebuilt=False)

    def layout(self, buckets: list[list[int]], *, rebuilt: bool) -> None:
        params = [[name, "float32", [size]] for name, size in zip(NAMES, SIZES, strict=True)]
        for rank in (0, 1):
            more = {} if rebuilt else {"params": params}
            self.made.line(rank, "ddp", self.now, d=1, g="0", buckets=buckets, rebuilt=rebuilt, **more)
        self.now += 0.1

    def forward(self, *, rebuild: bool = False, buffers: bool = False, quiet: bool = False) -> None:
        if quiet:
            for rank in (0, 1):
                self.made.line(rank, "module", self.now, d=1, sync=0)
        begin, via = self.now, "DistributedDataParallel.forward"
        self.now += 0.1
        if rebuild:
            self.call("broadcast", 5, via, dtype="int32", root=0)
            self.call("broadcast", 2, via, dtype="int32", root=0)
        if buffers:
            self.call("broadcast", 8, via, root=0)
        self.now += 0.1
        self.mark("forward", self.now, begin)
        if rebuild:
            self.layout([[3, 2], [1, 0]], rebuilt=True)

    def backward(self, *counts: int, dtype: str = "float32", bitmap: bool = False) -> None:
        begin = self.now
        self.now += 5
        for count in counts:
            self.call("all_reduce", count, "backward", dtype=dtype, took=10.0)
        if bitmap:
            self.call("all_reduce", 4, "backward", dtype="int32")
        self.now += 0.1
        self.mark("backward", self.now, begin)

    def story(self) -> dict[str, str]:
        return {finding.kind: finding.sentence for finding in build_ddp_story(read_evidence(self.made.record()))}


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_construction_and_three_steps_are_told_in_order(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(72)
    training.forward(rebuild=True)
    training.backward(22, 50)
    story = training.story()
    assert list(story) == ["ddp_counted", "ddp_verified", "ddp_state", "ddp_reduced", "ddp_rebuilt", "ddp_overlap"]
    assert "all_gather of int64 [1]" in story["ddp_counted"]
    assert "broadcast of int64 [12]" in story["ddp_verified"]
    assert golden(1) in story["ddp_state"]
    assert "2 buckets instead of 1" in story["ddp_rebuilt"]
    assert golden(2) in story["ddp_rebuilt"]
    assert golden(3) in story["ddp_reduced"]


def test_the_share_of_communication_that_ran_beside_backward(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(72)
    training.forward(rebuild=True)
    training.backward(22, 50)  # the first of two buckets of 10 ms is over when the second begins
    assert training.story()["ddp_overlap"].startswith(golden(1))


def test_one_bucket_cannot_overlap(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(72)
    assert training.story()["ddp_overlap"].startswith("With one bucket")


def test_buffers_are_told_from_the_order_of_parameters(training: Training) -> None:
    training.construct(buffers=8)
    for turn in range(3):
        training.forward(rebuild=turn == 1, buffers=True)
        training.backward(*((72,) if turn == 0 else (22, 50)))
    story = training.story()
    assert golden(1) in story["ddp_state"]
    assert story["ddp_buffers"].startswith(golden(2))
    assert "ddp_rebuilt" in story


def test_steps_without_synchronisation_are_counted(training: Training) -> None:
    training.construct()
    for turn in range(4):
        training.forward(quiet=turn < 3)
        training.backward(*((72,) if turn == 3 else ()))
    story = training.story()
    assert story["ddp_silent"].startswith(golden(1))


def test_the_bitmap_of_unused_parameters_is_no_bucket(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(72, bitmap=True)
    story = training.story()
    assert golden(1) in story["ddp_unused"]
    assert "ddp_other" not in story


def test_buckets_in_another_dtype_are_a_hooks_doing(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(72, dtype="float16")
    assert golden(1) in training.story()["ddp_compressed"]


def test_calls_that_are_no_bucket_are_told_as_such(training: Training) -> None:
    training.construct()
    training.forward()
    training.backward(7, 9)
    assert training.story()["ddp_other"].startswith(golden(1))


def test_without_ddp_there_is_no_story(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "all_reduce", 1, 2, [[1.0]], [[1.0]])
    assert build_ddp_story(read_evidence(made.record())) == []


def test_a_backward_that_sent_nothing_for_no_known_reason_is_left_out(training: Training) -> None:
    training.construct()
    for counts in ((72,), (), (72,)):
        training.forward()
        training.backward(*counts)
    story = training.story()
    assert "ddp_silent" not in story
    assert story["ddp_reduced"].startswith(golden(1))


def test_of_several_modules_each_is_told_what_is_its_own(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    for number, (name, count) in enumerate((("d.weight", 40), ("g.weight", 30)), start=1):
        made.mark(0, "DDP()", 10 * number, 10 * number + 1, at=f"gan.py:{number}")
        params = [[name, "float32", [count]]]
        made.line(0, "ddp", 10 * number + 2, d=number, g="0", params=params, buckets=[[0]], rebuilt=False)
    now = 100.0
    for _ in range(4):
        for went, count in ((1, 40), (2, 30)):
            made.line(0, "module", now, d=went, sync=1)
            made.mark(0, "forward", now + 1, now + 2)
            made.line(0, "mark", now + 3, n="backward", e=0)
            made.call(0, "all_reduce", now + 4, now + 5, [[0.5] * count], via="backward", **{"async": True})
            made.line(0, "mark", now + 6, n="backward", e=1)
            now += 10
    one, other = find_modules(read_evidence(made.record()).trace.ranks[0])
    assert [len(of) for of in (one.forwards, one.backwards, other.forwards, other.backwards)] == [4, 4, 4, 4]
    assert {call.parameters for backward in other.backwards for call in backward.buckets} == {("g.weight",)}


def test_a_bucket_that_may_be_of_either_module_is_nobodys(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    for number, name in enumerate(("a", "b"), start=1):
        params = [[name, "float32", [4]]]
        made.line(0, "ddp", number, d=number, g="0", params=params, buckets=[[0]], rebuilt=False)
        made.line(0, "module", 10 + 5 * number, d=number, sync=1)
        made.mark(0, "forward", 11 + 5 * number, 12 + 5 * number)
    made.line(0, "mark", 30, n="backward", e=0)
    made.call(0, "all_reduce", 31, 32, [[0.5] * 4], via="backward", **{"async": True})
    made.line(0, "mark", 33, n="backward", e=1)
    [call] = read_evidence(made.record()).calls(0)
    assert (call.bucket, call.module) == (None, None)
