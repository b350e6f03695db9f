"""Clusters of dead runs are removed by whoever makes a cluster next; those of living ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.engine.protocol import Removed
from lab.errors import ClusterError
from lab.node.messages.agent import Ready
from lab.plan.cluster import Shape
from lab.run.cluster_slot import remove_orphan_clusters
from lab.run.lock import ClusterLock
from tests.fake_engine import FakeEngine
from tests.golden import golden


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def engine_with(idle_s: float, *, run: str | None = "20261122-one", state: str = "running") -> FakeEngine:
    """One cluster of two nodes whose agents have not heard of a run for so long."""
    ready = {"hello": [Ready("", "2.13", idle_s=idle_s)]}
    engine = FakeEngine(answers={"node0": ready, "node1": ready})
    info = engine.create("c", Shape(nodes=2), run=run, announce=lambda _: None)
    engine.clusters["c"] = replace(info, nodes=tuple(replace(node, state=state) for node in info.nodes))
    return engine


def left(engine: FakeEngine) -> tuple[list[str], list[str]]:
    """What is left, and what was said."""
    said: list[str] = []
    remove_orphan_clusters(engine, said.append)
    return list(engine.clusters), said


def crash() -> None:
    """Somebody who held the lock was killed."""
    lock = ClusterLock("fake", "c")
    lock.path.parent.mkdir(parents=True)
    lock.path.write_text('{"pid": 1}')


def test_a_cluster_whose_command_was_killed_is_removed_at_once() -> None:
    engine = engine_with(0.0)
    crash()
    assert left(engine) == ([], [golden(1)])


def test_a_cluster_whose_agents_have_heard_of_no_run_for_longer_than_a_lease_is_removed() -> None:
    assert left(engine_with(61.0))[0] == []


@pytest.mark.parametrize("state", ["running", "created", "dead"])
def test_a_cluster_that_somebody_with_other_locks_may_still_use_stays(state: str) -> None:
    assert left(engine_with(59.0, state=state)) == (["c"], [])


def test_an_agent_that_does_not_answer_may_be_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.engine.ready._IDLE_TIMEOUT_S", 0.05)
    engine = engine_with(61.0)
    engine.answers["node1"] = {"hello": []}
    assert left(engine) == (["c"], [])


def test_a_cluster_that_is_in_use_stays() -> None:
    engine = engine_with(61.0)
    with ClusterLock("fake", "c").held("a run of x"):
        assert left(engine) == (["c"], [])


def test_a_cluster_that_stays_until_it_is_taken_down_is_never_removed() -> None:
    engine = engine_with(1e6, run=None)
    crash()
    assert left(engine) == (["c"], [])


def test_what_cannot_be_removed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cluster: str | None, *, settle: bool = False) -> Removed:
        raise ClusterError("it is stuck")

    engine = engine_with(61.0)
    monkeypatch.setattr(engine, "remove", fail)
    assert left(engine)[1] == [golden(1)]


def test_a_part_without_nodes_is_removed_if_whoever_was_making_it_was_killed() -> None:
    engine = FakeEngine()
    engine.remains = {"c"}
    crash()
    assert left(engine)[1] == [golden(1)]
    assert not engine.remains


def test_a_part_without_nodes_stays_while_somebody_makes_it_or_may_make_it_with_other_locks() -> None:
    engine = FakeEngine()
    engine.remains = {"c"}
    assert left(engine)[1] == []
    with ClusterLock("fake", "c").held("lab up"):
        assert left(engine)[1] == []
    assert engine.remains == {"c"}
