"""Hostile scripts run on the clusters of `tests/engines`; after each, a good one finds its nodes as they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from tests.engines import conftest as engines
from tests.engines.conftest import clusters, engine, make_cluster

__all__ = ["clusters", "engine", "make_cluster"]
HERE = Path(__file__).parent / "scripts"
Run = Callable[..., Result]


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """The cluster that most tests share."""
    return make_cluster(nodes=engines.NODES)


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    """Runs a script of this folder on two nodes, or others; afterwards a good script runs well there."""
    used: dict[int, tuple[Cluster, int | None]] = {}

    def run(script: str, *args: object, on: Cluster | None = None, **options: Any) -> Result:
        scenario = engines.scenario_of(HERE / script, *args, **engines._pick(options, "expect", "timeout_s", "cold"))
        where = on or cluster
        options.setdefault("nodes", None if on else 2)
        used[id(where)] = where, None if on else 2
        result = where.run(scenario, runs=tmp_path / "runs", **options)
        engines.judge_again(result)
        return result

    yield run
    for each, nodes in used.values():
        result = each.run(engines.scenario_of("collectives.py"), nodes=nodes, runs=tmp_path / "runs")
        assert result.passed, result.reason
