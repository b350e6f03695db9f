"""Which nodes a run has, on an engine without nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.features.launchers.launchers import Torchrun
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import PlanOptions, make_plan
from lab.record.write import RecordWriter
from lab.run.collect import Observer
from lab.run.drive import Driver
from lab.run.lock import nodes_lock
from lab.run.options import Job, RunOptions, Stdin
from lab.run.snapshot import Snapshot
from lab.spec.launching import LAB, Launching
from lab.spec.load import scenario_from_script
from tests.fake_engine import FakeEngine


class Run:
    """A run of three nodes that has not begun, as its driver sees it."""

    def __init__(self, folder: Path, launcher: str) -> None:
        (folder / "s.py").write_text("")
        launching = Launching(launcher, Torchrun(min_nodes=2) if launcher == "torchrun" else None)
        scenario = replace(scenario_from_script(folder / "s.py"), launcher=launching, timeout_s=0.5)
        self.engine = FakeEngine()
        cluster = self.engine.create("c", Shape(nodes=3), run=None, announce=lambda _: None)
        plan = make_plan(scenario, "r", cluster, PlanOptions())
        channels = self.engine.connect(cluster, cluster.nodes)
        job = Job(plan, cluster, self.engine, RecordWriter(folder / "runs", "s"), Observer(), RunOptions())
        self.driver = Driver(job, channels, Stdin(), Snapshot(key="/s", token="t"))
        self.driver.collector.finished.add("node2")

    @property
    def begun(self) -> list[str]:
        """The nodes that were taken in, if their agents were asked for all that the others were."""
        operations = {name: agent.operations for name, agent in self.engine.agents.items() if agent.operations}
        assert all(asked == ["claim", "content", "folder", "prepare", "go"] for asked in operations.values())
        return [*operations]

    def lose(self, *names: str) -> None:
        for name in names:
            del self.driver.agents.alive[name]
        self.engine.stop([node for node in self.driver.job.cluster.nodes if node.name in names])

    def start(self, name: str) -> None:
        there: ClusterInfo = self.engine.clusters["c"]
        self.engine.start(there, there.named(name), announce=lambda _: None)


@pytest.fixture
def elastic(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, "torchrun")


def test_a_run_goes_on_with_as_many_nodes_as_its_launcher_needs_and_never_without_the_first(elastic: Run) -> None:
    assert elastic.driver.has_enough_nodes
    elastic.lose("node2")
    assert elastic.driver.has_enough_nodes
    elastic.lose("node1")
    assert not elastic.driver.has_enough_nodes


def test_a_run_does_not_go_on_without_the_node_where_all_meet(elastic: Run) -> None:
    elastic.lose("node0")
    assert not elastic.driver.has_enough_nodes


def test_a_node_that_comes_back_takes_part_anew(elastic: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_START_S", "_STACK_DEADLINE_S", "_STOP_DEADLINE_S"):  # these agents start nothing and report nothing
        monkeypatch.setattr(f"lab.run.drive.{name}", 0.1)
    elastic.lose("node2")
    elastic.driver.add_nodes()
    assert elastic.begun == []  # it is still away
    elastic.start("node2")
    elastic.driver.add_nodes()
    elastic.driver.add_nodes()
    assert (elastic.begun, elastic.driver.facts.came) == (["node2"], ["node2"])
    assert elastic.driver.collector.finished == set()
    (channel,) = elastic.engine.channels
    elastic.driver.drive()
    assert channel.closed


def test_a_node_that_somebody_is_starting_is_not_taken_in_before_it_is_ready(elastic: Run) -> None:
    elastic.lose("node2")
    elastic.start("node2")
    with nodes_lock("fake", "c").held("lab start"):
        elastic.driver.add_nodes()
        assert elastic.begun == []
    elastic.driver.add_nodes()
    assert elastic.begun == ["node2"]


def test_the_labs_own_launcher_takes_nobody_in_and_does_without_nobody(
    tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, LAB)
    run.lose("node2")
    assert not run.driver.has_enough_nodes
    run.start("node2")
    run.driver.add_nodes()
    assert run.begun == []
