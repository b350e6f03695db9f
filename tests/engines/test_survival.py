"""Training that survives what is broken on purpose, and is the training that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Cluster
from tests.engines.lessons import LIBRARY

STEPS = 12


@pytest.mark.local_first
def test_a_killed_node_comes_back_and_the_next_run_goes_on_from_the_checkpoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    killed = cluster.run(LIBRARY / "survival" / "node_killed.yaml", runs=tmp_path / "runs")
    assert killed.passed, killed.reason

    resumed = cluster.run(LIBRARY / "survival" / "resumed.yaml", runs=tmp_path / "runs")

    assert resumed.passed, resumed.reason
    assert all(5 <= rank.notes["resumed_at"] < STEPS for rank in resumed.ranks)
