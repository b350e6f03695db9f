"""Every kind of fault that a scenario may name is there, and does, takes back and reads back what it says."""

from __future__ import annotations

import inspect

import pytest
from lab.fault.protocol import Ground, Kind, find_kind
from lab.spec.faults import KINDS, START, Fault

from lab.engine.protocol import NodeState
from lab.errors import ClusterError
from lab.plan.cluster import Node, Shape
from tests.unit.fake_engine import FakeEngine


class Powered(FakeEngine):
    """Knows which nodes run."""

    def __init__(self) -> None:
        super().__init__()
        self.up = {"node0", "node1"}

    def kill(self, node: Node) -> None:
        if node.name not in self.up:
            raise ClusterError("it does not run")
        self.up.discard(node.name)

    def start(self, cluster, nodes, *, announce) -> None:
        self.up |= {node.name for node in nodes}

    def node_state(self, node: Node) -> NodeState:
        return NodeState(running=node.name in self.up)


@pytest.fixture
def ground() -> Ground:
    engine = Powered()
    return Ground(engine, engine.create("c", Shape(nodes=2), run=None, announce=lambda _: None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_all_that_a_kind_owes(kind: str) -> None:
    module = find_kind(Fault(**{kind: "node1"}, when=START))
    for name, function in vars(Kind).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            owed = list(inspect.signature(function).parameters)[1:]
            assert list(inspect.signature(getattr(module, name)).parameters) == owed, name


def test_a_node_that_is_stopped_does_not_run_until_that_is_taken_back(ground: Ground) -> None:
    stop = Fault(stop="node1", when=START)
    kind = find_kind(stop)
    assert not kind.in_force(ground, stop)
    for _ in range(2):  # again is no error
        kind.apply(ground, stop)
        assert kind.in_force(ground, stop)
    for _ in range(2):
        kind.undo(ground, stop)
        assert not kind.in_force(ground, stop)


def test_a_node_that_is_started_runs_and_goes_on_to_run(ground: Ground) -> None:
    stop, start = Fault(stop="node1", when=START), Fault(start="node1", when=START)
    find_kind(stop).apply(ground, stop)
    find_kind(start).apply(ground, start)
    assert find_kind(start).in_force(ground, start)
    find_kind(start).undo(ground, start)
    assert not find_kind(stop).in_force(ground, stop)


def test_a_node_that_cannot_be_stopped_is_an_error(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(node: Node) -> None:
        raise ClusterError("the engine is tired")

    monkeypatch.setattr(ground.engine, "kill", refuse)
    stop = Fault(stop="node1", when=START)
    with pytest.raises(ClusterError, match="tired"):
        find_kind(stop).apply(ground, stop)
