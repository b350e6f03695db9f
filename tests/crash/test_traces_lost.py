"""A node dies during a run: what it had recorded a second before is in the record."""

from __future__ import annotations

import json

import pytest

from tests.crash.conftest import wait_until

pytestmark = pytest.mark.torch

MEETS = """
import os
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(2))
print("met", dist.get_rank(), flush=True)
if dist.get_rank() == 1:
    time.sleep(600)
dist.barrier()
"""


def calls(trace):
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    return [line["op"] for line in lines if line["k"] == "begin"]


@pytest.mark.local_first
@pytest.mark.timeout(240)
def test_what_a_lost_node_had_handed_over_stays_and_of_the_others_nothing_is_missing(lab):
    assert lab("up", "--nodes", "3").code == 0
    run = lab.start("run", lab.script(MEETS))
    run.wait_for("| met", 3)
    [record] = (lab.folder / ".lab" / "runs").iterdir()
    traces = [record / "trace" / f"rank{rank}.jsonl" for rank in range(3)]
    wait_until(lambda: traces[1].exists() and len(calls(traces[1])) == 5, "the trace of rank 1")
    lab.kill_node(1)
    assert run.end().code == 1

    assert calls(traces[1]) == ["all_reduce"] * 5
    for rank in (0, 2):
        assert calls(traces[rank]) == [*["all_reduce"] * 5, "barrier"]
    assert lab("down").code == 0
