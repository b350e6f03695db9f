"""The pool of warm clusters of one pytest process, on an engine without nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.engine.ownership import state_folder
from lab.engine.protocol import Traits
from lab.errors import ClusterError, ImageUnfit
from lab.features.pytest.guard import is_orphan, keeper_lock
from lab.features.pytest.pool import Pool, SessionCluster
from lab.plan.limits import Machine
from lab.run.cluster_slot import remove_orphan_clusters
from tests.fake_engine import FakeEngine
from tests.golden import golden


class Silent:
    """Is told what is being done, and keeps it."""

    def __init__(self, config: Any, worker: str, workers: int) -> None:
        self.config = config
        self.worker = {"workerid": worker, "workercount": workers}
        self.said: list[str] = []

    def begin(self) -> None:
        pass

    def announce(self, text: str) -> None:
        self.said.append(text)


class NoGuard:
    """Stands for the process that removes what this one leaves."""

    def poll(self) -> None:
        pass

    def communicate(self, **_: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()
    monkeypatch.setattr("lab.features.pytest.pool.select_engine", lambda choice: (engine, ""))
    monkeypatch.setattr("lab.features.pytest.pool.start_guard", NoGuard)
    return engine


def kept() -> list[str]:
    """The clusters that a guard would remove if this process died."""
    locks = (state_folder() / "locks").glob("fake-*.keeper.lock")
    names = [path.name.removeprefix("fake-").removesuffix(".keeper.lock") for path in locks]
    return [name for name in names if keeper_lock("fake", name).inspect()[1].get("pid") == os.getpid()]


MakePool = Callable[..., Pool]


@pytest.fixture
def make_pool(engine: FakeEngine, tmp_path: Path) -> MakePool:
    def make(*, keep: bool = False, worker: str = "", workers: int = 1) -> Pool:
        options = {"lab_engine": "auto", "lab_keep": keep}
        return Pool(Silent(SimpleNamespace(rootpath=tmp_path, getoption=options.get), worker, workers))  # type: ignore[arg-type]

    return make


def test_tests_that_want_the_same_shape_share_a_cluster(engine, make_pool):
    pool = make_pool()
    first = pool.cluster(nodes=2)
    assert pool.cluster(nodes=2) is first
    assert pool.cluster(nodes=2, nproc_per_node=2) is not first
    assert pool.cluster() is pool.cluster(nodes=3)
    assert engine.calls.count("create") == 3


def test_at_the_end_nothing_is_left(engine, make_pool, tmp_path):
    pool = make_pool()
    pool.cluster(nodes=2)
    pool.cluster(nodes=3)
    assert len(kept()) == 2
    assert pool.close() == []
    assert (engine.clusters, kept()) == ({}, [])
    assert [*(tmp_path / "state").rglob("*.lock")] == []
    assert pool.close() == []


def test_a_cluster_that_a_test_broke_is_made_again(engine, make_pool):
    pool = make_pool()
    name = pool.cluster(nodes=2).name
    info = engine.clusters[name]
    engine.clusters[name] = replace(info, nodes=tuple(replace(node, state="dead") for node in info.nodes))
    assert pool.cluster(nodes=2).info().state == "ready"
    assert pool.cluster(nodes=2).name == name


def test_a_cluster_that_a_test_removed_is_made_again(engine, make_pool):
    pool = make_pool()
    pool.cluster(nodes=2).down()
    assert len(pool.cluster(nodes=2).info().nodes) == 2


def test_a_cluster_that_this_process_is_using_is_given_as_it_is(make_pool):
    """As where a test has ranks that go on between its calls."""
    pool = make_pool()
    cluster = pool.cluster(nodes=2)
    with cluster.lock.held("ranks"):
        assert pool.cluster(nodes=2) is cluster


def test_one_that_cannot_be_made_leaves_nothing(engine, make_pool, tmp_path):
    def fail(call: str) -> None:
        if call == "create":
            raise ClusterError("no room")

    engine.failure = fail
    pool = make_pool()
    with pytest.raises(ClusterError, match="no room"):
        pool.cluster(nodes=2)
    assert [*(tmp_path / "state").rglob("*.lock")] == []


def test_an_image_that_cannot_be_had_is_asked_for_once(engine, make_pool):
    def fail(call: str) -> None:
        if call == "create":
            raise ImageUnfit("there is no such image")

    engine.failure = fail
    pool = make_pool()
    ways = []
    for _ in range(3):
        with pytest.raises(ImageUnfit, match="no such image") as caught:
            pool.cluster(nodes=2, image="mine")
        ways.append(len(caught.traceback))
    assert engine.calls.count("create") == 1
    assert ways[1] == ways[2] < ways[0], "each tells how it came about this time"


def test_what_was_not_used_for_longest_makes_room(engine, make_pool, monkeypatch):
    monkeypatch.setattr(engine, "machine", lambda: Machine(cores=1, memory_bytes=64 << 30))  # eight nodes at most
    pool = make_pool()
    pool.cluster(nodes=3)
    pool.cluster(nodes=2)
    pool.cluster(nodes=3)
    pool.in_use.clear()  # as at the end of a test
    pool.cluster(nodes=4)
    assert sorted(info.shape.nodes for info in engine.clusters.values()) == [3, 4]


def test_what_the_test_uses_that_runs_now_is_not_removed(engine, make_pool, monkeypatch):
    monkeypatch.setattr(engine, "machine", lambda: Machine(cores=1, memory_bytes=1 << 30))
    pool = make_pool()
    pool.cluster(nodes=3)
    pool.cluster(nodes=2)
    assert len(engine.clusters) == 2


def test_processes_side_by_side_have_half_the_room_each(engine, make_pool, monkeypatch):
    monkeypatch.setattr(engine, "machine", lambda: Machine(cores=1, memory_bytes=64 << 30))
    pool = make_pool(worker="gw0", workers=2)
    pool.cluster(nodes=2)
    pool.in_use.clear()
    pool.cluster(nodes=3)
    assert [info.shape.nodes for info in engine.clusters.values()] == [3]


@pytest.mark.parametrize(
    ("workers", "cores", "nodes", "cpus"), [(1, 8, 3, None), (2, 2, 3, 1.0), (4, 16, 2, 2.0), (2, 16, 1, 8.0)]
)
def test_processes_side_by_side_share_the_cores_of_a_docker_engine(
    engine, make_pool, monkeypatch, workers, cores, nodes, cpus
):
    engine.traits = Traits(divides_cores=True)
    monkeypatch.setattr(engine, "machine", lambda: Machine(cores=cores, memory_bytes=64 << 30))
    pool = make_pool(workers=workers)
    assert pool.cluster(nodes=nodes).info().shape.cpus == cpus
    assert pool.cluster(nodes=nodes, cpus=0.5).info().shape.cpus == 0.5


def test_names_are_unique_even_for_the_same_project(make_pool):
    pools = [make_pool(worker=worker, workers=3) for worker in ("gw0", "gw1", "gw1")]
    names = {pool.cluster(nodes=1).name for pool in pools}
    assert len(names) == 3
    assert all("-gw" in name and len(name) <= 36 for name in names)


def test_a_kept_cluster_is_taken_over_by_the_next_session_and_removed_by_one_that_does_not_keep(engine, make_pool):
    first = make_pool(keep=True)
    name = first.cluster(nodes=2).name
    assert first.close() == [name]
    second = make_pool(keep=True)
    assert second.cluster(nodes=2).name == name
    assert make_pool(keep=True).cluster(nodes=2).name != name, "two sessions at once"
    assert second.close() == [name]
    assert not is_orphan("fake", name)
    third = make_pool()
    assert third.cluster(nodes=2).name == name
    third.close()
    assert name not in engine.clusters


def test_whoever_makes_a_cluster_next_removes_those_of_a_dead_process(engine, make_pool):
    cluster: SessionCluster = make_pool().cluster(nodes=2)
    said: list[str] = []
    remove_orphan_clusters(engine, said.append)
    assert (list(engine.clusters), said) == ([cluster.name], [])
    lock = keeper_lock("fake", cluster.name).path
    lock.rename(lock.with_suffix(".held"))
    lock.write_text('{"pid": 1}')  # as of a process that was killed
    remove_orphan_clusters(engine, said.append)
    assert (engine.clusters, said) == ({}, [golden(1, cluster.name)])


def test_one_cluster_is_made_early_but_not_by_a_worker_of_many(engine, make_pool):
    pool = make_pool(workers=2)
    pool.make_early({"nodes": 2})
    pool.close()
    assert (engine.clusters, pool.summary) == ({}, "")
    pool = make_pool()
    for nodes in (2, 2, 3):
        pool.make_early({"nodes": nodes})
    cluster = pool.cluster(nodes=2)
    assert list(engine.clusters) == [cluster.name]
    assert pool.in_use == {cluster.name}
    assert cluster.fresh
    assert re.fullmatch(golden(1), pool.summary)
    pool.close()
    assert (engine.clusters, kept()) == ({}, [])


def test_a_cluster_that_cannot_be_made_early_fails_the_first_test_that_needs_it(engine, make_pool):
    def fail(call: str) -> None:
        if call == "create":
            raise ClusterError("no room")

    engine.failure = fail
    pool = make_pool()
    pool.make_early({"nodes": 2, "network": "1mbit"})
    with pytest.raises(ClusterError, match="no room"):
        pool.cluster(nodes=2)
    assert engine.calls.count("create") == 2
    engine.failure = lambda call: None
    pool.cluster(nodes=2)
    assert re.fullmatch(golden(1), pool.summary)


def test_an_early_cluster_that_no_test_used_is_removed(engine, make_pool):
    pool = make_pool()
    pool.make_early({"nodes": 2})
    pool.close()
    assert engine.calls.count("create") == 1
    assert (engine.clusters, kept()) == ({}, [])


def test_a_process_that_was_forked_off_removes_nothing(engine, make_pool):
    pool = make_pool()
    pool.cluster(nodes=2)
    pool._process = -1
    assert pool.close() == []
    assert len(engine.clusters) == 1


def test_a_run_with_wishes_has_a_cluster_of_its_own(engine, make_pool):
    pool = make_pool()
    with pool.standalone(nodes=2) as cluster:
        assert engine.clusters == {}
        assert kept() == [cluster.name]
    assert kept() == []
    with pytest.raises(ClusterError), pool.standalone(nodes=2):
        raise ClusterError("no room")
    assert kept() == []
