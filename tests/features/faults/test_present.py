"""Which nodes take part when a run begins, and what is refused because too few do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.errors import ClusterUnfit, LabError, UsageError
from lab.features.faults.fault import START, Fault, FaultsPart, When
from lab.features.faults.kinds.nodes import Kill, Start
from lab.features.launchers.launchers import Torchrun
from lab.plan.cluster import STOPPED, ClusterInfo, Node, Shape
from lab.plan.plan import list_present_nodes, refuse_absence
from lab.spec.launching import Launching

LAB = Launching()
ELASTIC = Launching("torchrun", Torchrun(min_nodes=2))
LATER = When(note="step")


def cluster(*stopped: int) -> ClusterInfo:
    nodes = [Node(name=f"node{rank}", node_rank=rank, handle=str(rank), address="") for rank in range(3)]
    nodes = [replace(node, state=STOPPED) if node.node_rank in stopped else node for node in nodes]
    return ClusterInfo(name="c", engine="fake", shape=Shape(nodes=3), nodes=tuple(nodes), owner="me")


def test_nodes_that_are_stopped_or_that_a_fault_stops_before_are_not_there() -> None:
    assert list_present_nodes(replace(cluster(), nodes=()), 3, ()) == ["node0", "node1", "node2"]
    assert list_present_nodes(cluster(1), 3, ()) == ["node0", "node2"]
    faults = [
        Fault(what=Kill(node="node2"), when=START),
        Fault(what=Start(node="node1"), when=START),
        Fault(what=Kill(node="node0"), when=LATER),
    ]
    assert list_present_nodes(cluster(1), 3, [FaultsPart(faults=faults)]) == ["node0", "node1"]


@pytest.mark.parametrize(
    ("launching", "stopped", "faults"),
    [
        (LAB, (), [Fault(what=Kill(node="node1"), when=LATER)]),
        (ELASTIC, (2,), []),
        (ELASTIC, (), [Fault(what=Kill(node="node2"), when=START), Fault(what=Start(node="node2"), when=LATER)]),
    ],
)
def test_a_run_begins_with_as_many_nodes_as_its_launcher_needs(launching, stopped, faults) -> None:
    refuse_absence("s", cluster(*stopped), 3, launching, [FaultsPart(faults=faults)])


@pytest.mark.parametrize(
    ("launching", "stopped", "faults", "kind", "message"),
    [
        (LAB, (1,), [], ClusterUnfit, "s needs 3 nodes, but node1 of cluster c is stopped"),
        (ELASTIC, (1, 2), [], ClusterUnfit, "s needs at least 2 nodes, including node0, but node1 and node2 of"),
        (ELASTIC, (0,), [], ClusterUnfit, "but node0 of cluster c is stopped"),
        (
            LAB,
            (),
            [Fault(what=Kill(node="node2"), when=START)],
            UsageError,
            "s would kill node2 before it begins, but the launcher",
        ),
        (ELASTIC, (), [Fault(what=Kill(node="node0"), when=START)], UsageError, "s would kill node0 before it begins"),
        (LAB, (), [Fault(what=Start(node="node2"), when=LATER)], UsageError, "the launcher lab accepts no new nodes"),
    ],
)
def test_what_cannot_begin_is_refused_in_a_sentence(launching, stopped, faults, kind: type[LabError], message) -> None:
    with pytest.raises(kind, match=message) as refused:
        refuse_absence("s", cluster(*stopped), 3, launching, [FaultsPart(faults=faults)])
    assert refused.value.hint
