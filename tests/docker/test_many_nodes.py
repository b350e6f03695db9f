"""Sixty-four containers on one machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from tests.engines.conftest import scenario_of, written

NODES = 64
SUMS = """
import torch, torch.distributed as dist
from lab import note
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
note("total", total.item())
dist.destroy_process_group()
"""


@pytest.fixture
def cluster(person: None) -> Iterator[Cluster]:
    made = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="docker", nodes=NODES)
    yield made
    made.down()


@pytest.mark.long
@pytest.mark.docker
@pytest.mark.timeout(900)
def test_64_nodes_share_what_they_import_and_all_of_their_ranks_reduce(cluster: Cluster, tmp_path: Path):
    cluster.up()
    info = cluster.info()
    assert info is not None
    assert len(info.nodes) == NODES
    used = [cluster.engine.memory_bytes(node) or 0 for node in info.nodes]
    assert max(used) < 40_000_000

    result = cluster.run(scenario_of(written(tmp_path / "s", SUMS), timeout_s=300.0), runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert {rank.notes["total"] for rank in result.ranks} == {sum(range(NODES))}
