"""Who was cut off, by what kernels said of connections: a node where most still reach each other, else the links."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from lab.diagnosis.facts import Network
from lab.features.links.findings import Cut, find_cut
from lab.node.messages.agent import Connections


def _network(nodes: int, *broken: tuple[int, int], told_by: set[int] | None = None, **more: Any) -> Network:
    """Every node told of every other; between some of them nothing gets through."""
    network = Network()
    for one, other in permutations(range(nodes), 2):
        if told_by is None or one in told_by:
            lost = (one, other) in broken or (other, one) in broken
            known = (
                {"silent_s": 3.0, "unacknowledged_bytes": 9, "sent_again": 4, "segments_out": 9, **more} if lost else {}
            )
            told = Connections(5.0, f"node{one}", "r", f"node{other}", 1, answers=not lost, **known)
            network.add(told, over=False)
    return network


def _cut(network: Network, nodes: int) -> Cut | None:
    return find_cut(network, [f"node{number}" for number in range(nodes)])


def test_of_three_nodes_the_one_that_reaches_no_other_is_named() -> None:
    cut = _cut(_network(3, (0, 2), (1, 2)), 3)
    assert cut is not None
    assert (cut.how, cut.nodes, cut.parts[0], cut.seconds) == ("nodes", ("node2",), ("node0", "node1"), 3.0)


def test_it_is_named_by_what_the_others_say_where_it_says_nothing() -> None:
    cut = _cut(_network(3, (0, 2), (1, 2), told_by={0, 1}), 3)
    assert cut is not None
    assert cut.nodes == ("node2",)


def test_of_two_halves_none_is_named() -> None:
    for nodes, broken in ((2, [(0, 1)]), (4, [(0, 2), (0, 3), (1, 2), (1, 3)])):
        cut = _cut(_network(nodes, *broken), nodes)
        assert cut is not None
        assert (cut.how, cut.nodes, cut.parts[0][0]) == ("halves", (), "node0")


def test_a_minority_is_named_whole() -> None:
    cut = _cut(_network(5, *((one, other) for one in (1, 3) for other in (0, 2, 4))), 5)
    assert cut is not None
    assert cut.nodes == ("node1", "node3")


def test_a_link_between_nodes_that_others_reach_is_named_and_no_node() -> None:
    cut = _cut(_network(3, (1, 2)), 3)
    assert cut is not None
    assert (cut.how, cut.nodes, cut.link, cut.seconds) == ("links", (), "node1 - node2", 3.0)


def test_a_bridge_is_no_cut_off_node() -> None:
    cut = _cut(_network(5, *((one, other) for one in (0, 1) for other in (3, 4))), 5)
    assert cut is not None
    assert cut.nodes == ()


def test_data_that_came_through_after_all_is_no_cut() -> None:
    network = _network(3, (0, 2), (1, 2))
    for one, other in ((0, 2), (2, 0), (1, 2), (2, 1)):
        network.add(Connections(6.0, f"node{one}", "r", f"node{other}", 1), over=False)
    assert _cut(network, 3) is None


def test_what_is_missing_once_the_run_is_over_means_nothing() -> None:
    network = _network(3, (0, 2), (1, 2))
    for one, other in permutations(range(3), 2):
        network.add(Connections(6.0, f"node{one}", "r", f"node{other}", 0, answers=True), over=True)
    cut = _cut(network, 3)
    assert cut is not None
    assert cut.nodes == ("node2",)


def test_a_node_whose_kernel_answers_is_not_cut_off() -> None:
    network = _network(3, (0, 2), (1, 2))
    for way in network.answers:
        network.answers[way] = True
    assert _cut(network, 3) is None


def test_a_cut_in_one_direction_is_called_so() -> None:
    network = _network(3, (0, 2), (1, 2))
    for node in ("node0", "node1"):
        sent = network.latest[node, "node2"]._replace(segments_out=50, segments_in=40)
        network.add(sent, over=False)
        network.add(network.latest["node2", node]._replace(segments_out=47, segments_in=50), over=False)
    cut = _cut(network, 3)
    assert cut is not None
    assert cut.direction == "received"
