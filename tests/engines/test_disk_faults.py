"""A disk that is full or slow, as the ranks of its node find it; other nodes do not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds.nodes import DiskFull, DiskSlow
from tests.engines.conftest import written

Run = Callable[..., Result]
SCRIPT = """\
import os
import time
import torch
from lab import note

for step in range(3):
    note("step", step)
    began = time.perf_counter()
    try:
        with open("own", "wb") as file:
            file.write(b"x" * 100000)
            file.flush()
            os.fsync(file.fileno())
        torch.save(torch.ones(10), "saved.pt")
    except OSError as error:
        note(f"wrote {step}", error.errno)
    else:
        note(f"wrote {step}", "all")
    note(f"took {step}", time.perf_counter() - began)
"""


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)])
def test_writes_are_refused_or_wait_until_that_is_healed(run: Run, tmp_path: Path, cold: bool) -> None:
    def step(rank: int, value: int) -> When:
        return When(rank=rank, note="step", equals=value)

    faults = (
        Fault(what=DiskFull(node="node1"), when=step(1, 1), until=step(1, 2)),
        Fault(what=DiskSlow(node="node2", by_s=0.1), when=step(2, 1), until=step(2, 2)),
    )
    result = run(written(tmp_path / "s", SCRIPT), faults=faults, cold=cold)
    assert result.passed, result.reason
    wrote = [[rank.notes[f"wrote {number}"] for number in range(3)] for rank in result.ranks]
    assert wrote == [["all"] * 3, ["all", 28, "all"], ["all"] * 3]
    assert result.ranks[2].notes["took 1"] > 0.2  # two writes at least, and an fsync
