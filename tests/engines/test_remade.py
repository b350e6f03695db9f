"""A cluster with a node that is none for a run any more is made again before the next run, and it is said why."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.plan.cluster import ClusterInfo
from lab.run.collect import Observer
from lab.run.options import RunOptions
from tests.engines.conftest import scenario_of, written
from tests.golden import golden


@pytest.fixture
def told() -> list[str]:
    """What the cluster announces."""
    return []


@pytest.fixture
def own_cluster(engine: str, told: list[str]) -> Iterator[Cluster]:
    """One node that this test may break."""
    with Cluster(nodes=1, name=f"t-{uuid.uuid4().hex[:12]}", engine=engine, announce=told.append) as cluster:
        told.clear()
        yield cluster


class Breaker(Observer):
    """When a rank says that it waits, puts a file where its agent has the folder for its runs."""

    def __init__(self, cluster: Cluster, info: ClusterInfo) -> None:
        self.cluster = cluster
        self.info = info
        local = info.engine == "local"
        self.root = str(Path(info.nodes[0].handle).with_suffix("")) if local else "/var/lab"

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        if b"waiting" in data:
            commands = f"cd / && mv {self.root} {self.root}.away && : > {self.root} && : > {self.info.shared}/go"
            words = ["sh", "-c", commands]
            assert self.cluster.engine.execute(self.info, self.info.nodes[0], words, tty=False) == 0


def fine(folder: Path) -> Path:
    return written(folder / "fine", "print('fine')")


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_a_node_that_cannot_be_cleaned_is_made_again_before_the_next_run(
    own_cluster: Cluster, told: list[str], tmp_path: Path
) -> None:
    info = own_cluster.info()
    assert info is not None

    outcomes = own_cluster.run_all(
        [scenario_of("waits_for_go.py"), *[scenario_of(fine(tmp_path))] * 2],
        observer=Breaker(own_cluster, info),
        options=RunOptions(runs=tmp_path / "runs"),
    )

    after = outcomes[1:]  # what was done to the first may be noticed while it goes on, and then ends it
    assert [outcome.passed for outcome in after if isinstance(outcome, Result)] == [True] * 2, outcomes
    (why,) = [line for line in told if line.startswith("removed")]
    assert why.startswith(golden(1, own_cluster.name))


@pytest.mark.long  # as tests/crash/test_nodes_lost.py
@pytest.mark.local_first
def test_a_node_that_dies_between_two_runs_is_made_again_before_the_next(
    own_cluster: Cluster, told: list[str], tmp_path: Path
) -> None:
    info = own_cluster.info()
    assert info is not None
    names = []

    def kill_once(*_: object) -> None:
        if not names:
            own_cluster.engine.kill(info.nodes[0])
        names.append("ended")

    outcomes = own_cluster.run_all(
        [scenario_of(fine(tmp_path))] * 3, ended=kill_once, options=RunOptions(runs=tmp_path / "runs")
    )

    assert [outcome.passed for outcome in outcomes if isinstance(outcome, Result)] == [True] * 3, outcomes
    assert sum(line.startswith("removed") for line in told) == 1
