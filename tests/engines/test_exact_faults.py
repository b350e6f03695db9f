"""Faults that hit at an exact point: a rank is held at its n-th call, a phase or a note until the fault is in force.

By both recorders: the compiled one counts calls itself, and has Python hold those that are reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Result
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds.ranks import Flip, Hang, Loader, Nan, Pauses, Raise, Signal
from lab.spec.launching import Launching
from tests.engines.conftest import each_recorder, lines_of, written
from tests.golden import golden

Run = Callable[..., Result]
pytestmark = pytest.mark.trains


def calls(result: Result, rank: int, op: str) -> tuple[int, int]:
    """How many calls of an operation a rank began, and how many of them ended."""
    lines = lines_of(result, rank)
    begun = {line["i"] for line in lines if line["k"] == "begin" and line["op"] == op}
    return len(begun), sum(line["k"] == "end" and line["i"] in begun for line in lines)


@each_recorder
@pytest.mark.parametrize(("edge", "expected"), [("before", (2, 2)), ("after", (3, 3))])
def test_a_rank_is_killed_at_its_third_call(run: Run, recorder: str, edge: str, expected: tuple[int, int]) -> None:
    fault = Fault(what=Signal(rank=2), when=When(rank=2, op="all_reduce", count=3, edge=edge))
    result = run("breakable.py", env={"LAB_RECORDER": recorder}, faults=(fault,))
    assert result.ranks[2].signal == "SIGKILL"
    assert calls(result, 2, "all_reduce") == expected
    assert calls(result, 0, "all_reduce")[0] == (3 if edge == "before" else 4)


@each_recorder
def test_what_a_rank_brings_is_changed_and_it_is_stopped_and_raises_in_backward(run: Run, recorder: str) -> None:
    def call(count: int, op: str = "all_reduce", **more: Any) -> When:
        return When(rank=1, op=op, count=count, **more)

    faults = (
        Fault(what=Nan(rank=1, element=3), when=call(1)),
        Fault(what=Flip(rank=1, bit=30), when=call(2)),
        Fault(what=Signal(rank=2, name="SIGSTOP"), when=When(rank=2, note="step", equals=2), for_s=0.05),
        Fault(what=Hang(rank=1), when=call(1, "send", edge="after"), for_s=0.05),
        Fault(what=Nan(rank=1), when=call(1, "all_gather")),  # of DDP, which counts parameters so
        Fault(what=Hang(rank=1, lock=False), when=When(rank=1, phase="backward", count=2, edge="after"), for_s=0.05),
        Fault(what=Raise(rank=1, error="ValueError", message="asked for"), when=call(7)),
    )
    result = run("breakable.py", env={"LAB_RECORDER": recorder}, faults=faults)

    assert [fault["fault"] for fault in result.faults] == [str(fault) for fault in faults]
    assert [fault["failed"] for fault in result.faults] == [*[""] * 4, golden(1), "", ""]
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert result.culprit.error.startswith(golden(2))
    assert calls(result, 1, "all_reduce") == (6, 6)
    notes, whole = result.ranks[0].notes, [[3.0, 3.0]] * 3
    changed, flipped = [[3.0, 3.0], [3.0, "nan"], [3.0, 3.0]], [["inf", 3.0], [3.0, 3.0], [3.0, 3.0]]
    assert [notes[f"sum {step}"] for step in range(4)] == [changed, flipped, whole, whole]
    assert result.ranks[1].notes["received"] == 1.0
    start, *lines = lines_of(result, 1)
    assert start["recorder"] == {"auto": "compiled"}.get(recorder, recorder)
    brought = [line for line in lines if line["k"] == "begin" and line["op"] == "all_reduce"]
    assert brought[0]["iv"] == [[1.0, 1.0, 1.0, "nan", 1.0, 1.0]]


@pytest.mark.long
@each_recorder
@pytest.mark.parametrize(
    ("more", "launcher"),
    [
        pytest.param({"cold": True}, None, id="cold"),
        pytest.param({"nodes": 2, "nproc_per_node": 2}, None, id="two-on-a-node"),
        pytest.param({}, "torchrun", id="torchrun"),
        pytest.param({}, "mpirun", id="mpirun"),
    ],
)
def test_ranks_are_held_however_they_are_started(
    run: Run, recorder: str, more: dict[str, Any], launcher: str | None
) -> None:
    when = When(rank=2, op="all_reduce", count=3)
    twice = (Fault(what=Nan(rank=2), when=when), Fault(what=Signal(rank=2, name="SIGSEGV"), when=when))
    started = {"launcher": Launching(name=launcher)} if launcher else {}
    result = run("breakable.py", env={"LAB_RECORDER": recorder}, faults=twice, **more, **started)
    assert [fault["why"] for fault in result.faults] == [golden(1)] * 2
    assert result.ranks[2].signal == "SIGSEGV"
    assert calls(result, 2, "all_reduce") == (2, 2)


STANDS_STILL = """\
import threading, time
import torch, torch.distributed as dist
from lab import note

def paused():
    return any(thread.name == "pauses" for thread in threading.enumerate())

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
longest, last = 0.0, time.monotonic()
end = last + 60
while paused() and last < end:  # until they are over
    before, last = last, time.monotonic()
    longest = max(longest, last - before)
note("stood_still", longest >= 0.1)
note("over", not paused())
dist.barrier()
"""


def test_a_rank_stands_still_again_and_again_while_pauses_are_in_force(run: Run, tmp_path: Path) -> None:
    pauses = Pauses(rank=1, every_s=0.02, last_s=0.1)
    fault = Fault(what=pauses, when=When(rank=1, op="all_reduce", edge="after"), for_s=0.5)
    result = run(written(tmp_path, STANDS_STILL), nodes=2, faults=(fault,))
    assert result.passed, result.reason
    assert result.faults[0]["failed"] == ""
    assert result.ranks[1].notes == {"stood_still": True, "over": True}


LOADS = """\
from torch.utils.data import DataLoader
from lab import note

for index, _ in enumerate(DataLoader(range(10000), num_workers=2)):
    note("item", index)
"""


def test_a_process_that_loads_data_is_killed(run: Run, tmp_path: Path) -> None:
    fault = Fault(what=Loader(rank=0, worker=1), when=When(rank=0, note="item", equals=3))
    result = run(written(tmp_path / "s", LOADS), nodes=1, faults=(fault,))
    assert [told["failed"] for told in result.faults] == [""]
    assert result.culprit is not None
    # where it dies while it hands something over, its connections may be closed before it is known to have ended
    assert re.search(golden(1), result.culprit.error)
