"""Every kind of fault has what a kind owes, and those of nodes do, take back and read back what they say."""

from __future__ import annotations

import pytest

from lab.engine.protocol import NodeState
from lab.errors import ClusterError
from lab.features.faults.kinds import FaultKind, fault_kinds, key_of
from lab.features.faults.kinds.nodes import Kill, Start
from lab.features.faults.target import ClusterTarget
from lab.plan.cluster import Node, Shape
from tests.fake_engine import FakeEngine


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
def engine() -> Powered:
    return Powered()


@pytest.fixture
def target(engine: Powered) -> ClusterTarget:
    return ClusterTarget(engine, engine.create("c", Shape(nodes=2), run=None, announce=lambda _: None))


@pytest.mark.parametrize("kind", fault_kinds().values(), ids=fault_kinds())
def test_a_kind_has_all_that_a_kind_owes(kind: type[FaultKind]) -> None:
    assert kind.does
    assert key_of(kind) == kind.example.partition(":")[0]
    assert not kind.why_not("docker")
    assert kind.__str__ is not object.__str__
    done = ("apply", "undo", "read_back") if not kind.by_worker else ()
    assert all(getattr(kind, name) is not getattr(FaultKind, name) for name in done)


def test_a_node_that_is_killed_does_not_run_until_that_is_taken_back(target: ClusterTarget) -> None:
    kill = Kill(node="node1")
    assert not kill.read_back(target)["in_force"]
    for _ in range(2):  # again is no error
        kill.apply(target)
        assert kill.read_back(target)["in_force"]
    for _ in range(2):
        kill.undo(target)
        assert not kill.read_back(target)["in_force"]


def test_a_node_that_is_started_runs_and_goes_on_to_run(target: ClusterTarget) -> None:
    kill, start = Kill(node="node1"), Start(node="node1")
    kill.apply(target)
    start.apply(target)
    assert start.read_back(target)["in_force"]
    start.undo(target)
    assert not kill.read_back(target)["in_force"]


def test_a_node_that_cannot_be_killed_is_an_error(
    engine: Powered, target: ClusterTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(node: Node) -> None:
        raise ClusterError("the engine is tired")

    monkeypatch.setattr(engine, "kill", refuse)
    with pytest.raises(ClusterError, match="tired"):
        Kill(node="node1").apply(target)
