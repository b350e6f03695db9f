"""Nodes with clocks of their own: agents in time namespaces, where the monotonic clock shows something else."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster
from lab.engine.local.engine import LocalEngine
from lab.engine.protocol import Announce, Channel
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.trace.steps import match_steps
from tests.engines.conftest import SCRIPTS, lines_of, trace_of

AHEAD_S = 1000
ELSEWHERE = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(AHEAD_S), "--boottime", str(AHEAD_S)]


class TwoHosts(LocalEngine):
    """Local nodes, each the only one of its machine: the second is in a time namespace."""

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        first = super().create(cluster, replace(shape, nodes=1), run=run, announce=announce)
        popen = subprocess.Popen

        def elsewhere(argv: Sequence[str], **more: Any) -> Any:
            return popen([*ELSEWHERE, *argv], **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", elsewhere)
            second = super().create(f"{cluster}-b", shape, run=run, announce=announce)
        self.hosts = replace(first, shape=shape, nodes=(first.nodes[0], second.nodes[1]))
        return self.hosts

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        return [self.hosts] if hasattr(self, "hosts") and cluster == self.hosts.name else super().find(cluster)

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        return super().connect(self.hosts, nodes)


@pytest.fixture
def two_hosts(person: None) -> Iterator[Cluster]:
    if subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs kernel with time namespaces, and root")
    engine = TwoHosts()
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Cluster(2, name=name, engine=engine) as cluster:
        yield cluster
    engine.remove(f"{name}-b")


def test_nobody_leaves_a_barrier_before_the_last_has_come_though_their_clocks_differ(
    two_hosts: Cluster, tmp_path: Path
) -> None:
    result = two_hosts.run(SCRIPTS / "traced.py", args=["meets_in_barriers"], runs=tmp_path)
    assert result.passed, result.reason
    one, other = (lines_of(result, rank)[0] for rank in (0, 1))
    assert one["boot"] != other["boot"]
    assert other["t"] - one["t"] > 0.9e9 * AHEAD_S
    trace = trace_of(result)
    assert trace.clocks.are_separate
    steps = [step for step in match_steps(trace) if step.op == "barrier"]
    assert len(steps) == 30
    for step in steps:
        assert step.missing == ()
        assert 0 < step.uncertainty_s < 0.1
        last_in = max(call.begin for call in step.calls.values())
        assert min(call.end or 0.0 for call in step.calls.values()) >= last_in - step.uncertainty_s
