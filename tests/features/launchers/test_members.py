"""Which nodes a run has, on an engine without nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.launchers.torchrun import Torchrun
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import PlanOptions, make_plan
from lab.record.events import NodeCame
from lab.run.conversation import Members
from lab.run.lock import nodes_lock
from lab.spec.launching import LAB, Launching
from lab.spec.load import scenario_from_script
from tests.fake_engine import FakeEngine


class Run:
    """A run of three nodes, as its members see it."""

    def __init__(self, folder: Path, launcher: str) -> None:
        (folder / "s.py").write_text("")
        launching = Launching(launcher, Torchrun(min_nodes=2) if launcher == "torchrun" else None)
        scenario = replace(scenario_from_script(folder / "s.py"), launcher=launching)
        self.engine = FakeEngine()
        self.cluster = self.engine.create("c", Shape(nodes=3), run=None, announce=lambda _: None)
        self.agents: Any = SimpleNamespace(alive={node.name: None for node in self.cluster.nodes}, add=self._add)
        self.events: list[Any] = []
        named = {name: {"node2"} for name in ("claimed", "prepared", "finished")}
        self.collector: Any = SimpleNamespace(fact=self.events.append, **named)
        self.begun: list[str] = []
        plan = make_plan(scenario, "r", self.cluster, PlanOptions())
        self.members = Members(plan, self.engine, self.cluster, self.agents, self.collector, self.begun.append)

    def _add(self, channel: Any) -> None:
        self.agents.alive[channel.node.name] = channel

    def lose(self, *names: str) -> None:
        for name in names:
            del self.agents.alive[name]
        self.engine.stop([node for node in self.cluster.nodes if node.name in names])

    def start(self, name: str) -> None:
        there: ClusterInfo = self.engine.clusters["c"]
        self.engine.start(there, there.named(name), announce=lambda _: None)


@pytest.fixture
def elastic(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, "torchrun")


def test_a_run_goes_on_with_as_many_nodes_as_its_launcher_needs_and_never_without_the_first(elastic: Run) -> None:
    assert elastic.members.enough
    elastic.lose("node2")
    assert elastic.members.enough
    elastic.lose("node1")
    assert not elastic.members.enough


def test_a_run_does_not_go_on_without_the_node_where_all_meet(elastic: Run) -> None:
    elastic.lose("node0")
    assert not elastic.members.enough


def test_a_node_that_comes_back_takes_part_anew(elastic: Run) -> None:
    elastic.lose("node2")
    elastic.members.look()
    assert elastic.begun == []  # it is still away
    elastic.start("node2")
    elastic.members.look()
    elastic.members.look()
    assert (elastic.begun, [type(event) for event in elastic.events]) == (["node2"], [NodeCame])
    assert elastic.collector.finished == set()
    elastic.members.close()
    assert elastic.engine.channels[-1].closed


def test_a_node_that_somebody_is_starting_is_not_taken_in_before_it_is_ready(elastic: Run) -> None:
    elastic.lose("node2")
    elastic.start("node2")
    with nodes_lock("fake", "c").held("lab start"):
        elastic.members.look()
        assert elastic.begun == []
    elastic.members.look()
    assert elastic.begun == ["node2"]


def test_the_labs_own_launcher_takes_nobody_in_and_does_without_nobody(
    tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, LAB)
    run.lose("node2")
    assert not run.members.enough
    run.start("node2")
    run.members.look()
    assert run.begun == []
