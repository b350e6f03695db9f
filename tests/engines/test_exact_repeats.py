"""A fault that a call, a phase or a note sets off hits the same point in every run, as the records say."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import Result
from lab.errors import MachineLacks
from lab.features.faults.fault import Fault, When, parse_kind
from lab.features.faults.kinds import fault_kinds
from lab.record import events
from lab.record.read import Record
from lab.trace.model import Call, Trace
from tests.engines.conftest import Run, each_recorder, trace_of, written

pytestmark = pytest.mark.trains
RANK = 2
REPEATS = 10
POINTS = {
    "before a call": (When(rank=RANK, op="all_reduce", count=3), 2),
    "after a call": (When(rank=RANK, op="all_reduce", count=3, edge="after"), 3),
    "before a phase": (When(rank=RANK, phase="backward", count=2), 5),
    "after a phase": (When(rank=RANK, phase="backward", count=2, edge="after"), 6),
    "a note": (When(rank=RANK, note="step", equals=2), 2),
}
"""Each with the all_reduces that the rank has then had, of seven."""
BREAKS: dict[str, dict[str, Any]] = {"signal": {"name": "SIGKILL"}, "raise": {"message": "out of milk"}, "nan": {}}
Traced = Callable[..., tuple[Result, Trace]]


class Broken(NamedTuple):
    """Where a run broke, as its record says."""

    at: str
    """The call or phase at which its rank was held."""
    call: int | None
    """The how-manieth."""
    completed: int
    """All_reduces that the rank completed."""
    spoilt: list[int]
    """Those of rank 0 that came out as NaN, by number."""


def broken_once(traced: Traced, point: str, kind: str) -> Broken:
    fault = Fault(what=fault_kinds()[kind](rank=RANK, **BREAKS[kind]), when=POINTS[point][0])
    result, trace = traced("breakable.py", faults=(fault,))
    assert result.path is not None
    (told,) = (event for event in Record(path=result.path).events() if isinstance(event, events.Fault))
    mine, first = ([call for call in trace.ranks[rank].calls if call.op == "all_reduce"] for rank in (RANK, 0))
    completed = sum(call.state == "completed" for call in mine)
    spoilt = [number for number, call in enumerate(first, start=1) if is_nan(call)]
    return Broken(told.op, told.call, completed, spoilt)


def is_nan(call: Call) -> bool:
    """Whether something of what came out of it is none."""
    return any(math.isnan(float(value)) for buffer in call.outputs for value in buffer.values or ())


@pytest.mark.long
@pytest.mark.timeout(600)
@each_recorder
@pytest.mark.parametrize(
    ("point", "kind"), [pair for pair in product(POINTS, BREAKS) if pair[1] != "nan" or pair[0] == "before a call"]
)
def test_ten_runs_break_at_the_same_point(traced: Traced, point: str, kind: str):
    when, completed = POINTS[point]
    at, call = when.op or when.phase or "", None if when.note else when.count
    expected = Broken(at, call, 7, [3]) if kind == "nan" else Broken(at, call, completed, [])
    assert [broken_once(traced, point, kind) for _ in range(REPEATS)] == [expected] * REPEATS


SUMS = """\
import torch, torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
for step, batch in enumerate(DataLoader(range(1000), num_workers=1)):
    dist.all_reduce(batch.float())
    if step == 4:
        break
dist.barrier()
"""
"""With what each kind needs: a tensor of floats, and a process that loads data."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)
@pytest.mark.parametrize("kind", [kind for kind in fault_kinds() if kind != "start"])  # which breaks nothing
def test_each_kind_hits_the_third_call_of_its_rank_ten_times(run: Run, tmp_path: Path, kind: str):
    what = parse_kind(kind, {"network": "lan-1g"}.get(kind) or fault_kinds()[kind].example.partition(": ")[2])
    rank = what.ranks[0] if what.ranks else RANK
    fault = Fault(what=what, when=When(rank=rank, op="all_reduce", count=3), for_s=0.1)
    script = written(tmp_path, SUMS)
    for _ in range(REPEATS):
        try:
            result = run(script, faults=(fault,))
        except MachineLacks as error:
            pytest.skip(f"needs kernel: {error.message}")
        assert result.path is not None
        (told,) = (event for event in Record(path=result.path).events() if isinstance(event, events.Fault))
        assert told.begun is not None
        trace = trace_of(result)
        held = told.begun - trace.origin
        before = [call.op for call in trace.ranks[rank].calls if (call.end or math.inf) < held]
        assert (told.op, told.call, before) == ("all_reduce", 3, ["all_reduce"] * 2)
