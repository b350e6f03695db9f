"""What was broken on purpose is found by those who do not know of it: named, and noticed by whoever saw it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.explain import explain_run
from lab.node.messages.agent import Connections
from lab.record.read import Record
from lab.spec.load import load_scenario
from tests.engines.conftest import MakeCluster
from tests.engines.lessons import Lesson
from tests.golden import golden

on_docker = pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)

_GIVES_UP = """
import datetime
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(4):
    dist.all_reduce(torch.ones(4), async_op=True).wait(datetime.timedelta(seconds=3))
"""
_SCENARIO = """
script: train.py
nodes: 3
timeout: 60s
faults: [{{{fault}, when: {{rank: 2, op: all_reduce, count: 3}}}}]
expect: {{verdict: failed, culprit: node2, detected_within: 30s}}
"""


def _scenario(folder: Path, fault: str) -> Path:
    (folder / "train.py").write_text(_GIVES_UP)
    path = folder / "train.yaml"
    path.write_text(_SCENARIO.format(fault=fault))
    return path


@on_docker
def test_a_node_that_is_cut_off_is_named_by_what_kernels_say(make_cluster: MakeCluster, tmp_path: Path) -> None:
    scenario = load_scenario(_scenario(tmp_path, "partition: isolate node2"))
    result = make_cluster(nodes=3).run(scenario, runs=tmp_path / "runs")
    assert result.passed, result.reason
    assert golden(1) in result.reason
    assert result.culprit is not None
    assert result.culprit.cause == "cut_off"
    assert result.path is not None
    told = [one for one in Record(path=result.path).events() if isinstance(one, Connections)]
    assert {one.node for one in told if one.stuck} >= {"node2"} or {one.peer for one in told if one.stuck} == {"node2"}


@on_docker
@pytest.mark.parametrize(
    ("incident", "rank"),
    [
        *(("nic_flap", 1), ("gc_pauses", 1)),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("switch", 2), ("slow_link", 2), ("slow_compute", 1), ("storage_slow", 0))
        ),
    ],
)
def test_what_others_break_on_purpose_is_localised(lesson: Lesson, incident: str, rank: int) -> None:
    """What gloo can bear of the seven injections that docs/incidents.md tells of."""
    result = lesson(f"incidents/{incident}")
    assert result.path is not None
    if result.culprit is not None:
        assert result.culprit.rank == rank or result.culprit.node == f"node{rank}"
    else:
        findings = explain_run(Record(path=result.path)).findings
        first = next(one for one in findings if one.kind in ("cut_off", "slow_link", "straggler"))
        assert first.ranks[0] == rank


@pytest.mark.long
def test_a_node_that_is_killed_is_noticed_and_named(make_cluster: MakeCluster, tmp_path: Path) -> None:
    result = make_cluster(nodes=3).run(load_scenario(_scenario(tmp_path, "kill: node2")), runs=tmp_path / "runs")
    assert result.passed, result.reason
    [fault] = result.faults
    assert fault["detected_s"] >= 0
    assert fault["by"]
    assert result.culprit is not None
    assert result.culprit.cause in ("node_lost", "killed")
