"""What nodes are told of conditions on their links, in which words they are said, and what several are together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.errors import ScenarioError, UsageError
from lab.features.faults.fault import fault_data, one_fault, refuse_faults
from lab.features.faults.kinds.links import network_of
from lab.features.faults.network import (
    PROFILES,
    Link,
    checked_partition,
    find_drops,
    parse_link,
)
from lab.features.faults.on_node import combine_conditions, merge_parts
from lab.plan.cluster import Shape
from lab.plan.plan import unmade_cluster
from lab.spec.reading import Reading, Value
from tests.golden import golden

ADDRESSES = {f"node{rank}": f"10.0.0.{rank + 2}" for rank in range(4)}
NODES = list(ADDRESSES)
AT = {address: name for name, address in ADDRESSES.items()}


def fault(text: str) -> Any:
    reading = Reading(Path("f.yaml"))
    found = None
    with reading.attempt():
        found = one_fault().read(Value(yaml.compose(f"{{{text}, when: start}}"), "fault", reading))
    reading.raise_if_any()
    return found


def told(text: str) -> dict[str, dict[str, Any]]:
    """What a fault tells each node, with names in the place of addresses, and nothing that is empty."""
    return by_name(fault(text).what.tables(ADDRESSES))


def by_name(tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node, said in tables.items():
        assert said["address"] == ADDRESSES[node]
        ways = {way: {AT[peer]: how for peer, how in said[way].items()} for way in ("to", "from")}
        rest = {name: value for name, value in said.items() if name not in ("address", "to", "from")}
        found[node] = {name: value for name, value in {**ways, **rest}.items() if value}
    return found


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("node2", Link("node2")),
        ("all", Link("all")),
        ("node2 -> node0", Link("node2", "->", "node0")),
        (" node2->node0 ", Link("node2", "->", "node0")),
        ("node2 - node0", Link("node2", "-", "node0")),
    ],
)
def test_links_are_said_in_words(text: str, link: Link) -> None:
    assert parse_link(text) == link
    assert parse_link(str(link)) == link


@pytest.mark.parametrize(
    "text", ["", "node", "node0 -", "node0 - node0", "all - node0", "node0 <- node1", "node0, node1"]
)
def test_what_is_no_link_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="allowed: a node"):
        parse_link(text)


def test_a_link_means_ways() -> None:
    assert Link("node2", "->", "node0").ways(NODES) == [("node2", "node0")]
    assert Link("node2", "-", "node0").ways(NODES) == [("node2", "node0"), ("node0", "node2")]
    assert len(Link("node2").ways(NODES)) == 6
    assert len(Link("all").ways(NODES)) == 12
    assert Link("node9", "-", "node0").ways(NODES) == []


def test_a_delay_is_done_by_whoever_sends() -> None:
    late = {"delay_s": 0.05, "jitter_s": 0.005}
    assert told(golden(1)) == {"node2": {"to": {"node0": late}}}
    assert told(golden(2)) == {
        "node2": {"to": {"node0": late}},
        "node0": {"to": {"node2": late}},
    }


def test_loss_is_done_by_whoever_gets_it() -> None:
    assert told("loss: node2 -> node0 5%") == {"node0": {"from": {"node2": {"loss": 0.05}}}}


def test_a_node_has_one_cable_and_each_other_sends_to_it_no_faster() -> None:
    found = told("rate: node2 100mbit")
    assert found.pop("node2") == {"to": {"node0": {}, "node1": {}, "node3": {}}, "rate_bits_per_s": 1e8}
    assert found == {node: {"to": {"node2": {"rate_bits_per_s": 1e8}}} for node in ("node0", "node1", "node3")}


def test_a_pair_has_a_rate_each_way() -> None:
    assert told(golden(1)) == {
        "node2": {"to": {"node0": {"rate_bits_per_s": 1e7}}},
        "node0": {"to": {"node2": {"rate_bits_per_s": 1e7}}},
    }


@pytest.mark.parametrize(
    "text",
    [
        "delay: node2 0.05s jitter 0.005s",
        "rate: node2 -> node0 100mbit",
        "loss: all 5%",
        "duplicate: node2 - node0 10%",
        "corrupt: node2 1%",
        "reorder: node2 25% by 0.02s",
        "reset: node2 - node0",
        "partition: node0 / node1",
        "dns: node2",
        "dns: all",
        "network: wan-40ms",
    ],
)
def test_a_fault_of_links_says_itself_as_a_person_would(text: str) -> None:
    found = fault(text)
    assert str(found) == text.replace(": ", " ", 1)
    again = ", ".join(f"{name}: {value}" for name, value in fault_data(found).items() if name != "when")
    assert fault(again.replace("'", "")) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delay: node2", "without by; allowed: words such as 'node2 50ms jitter 5ms'"),
        ("delay: node2 soon", "fault.delay.by: found 'soon'; allowed: a duration"),
        ("delay: node2 5ms jitter", "fault.delay: found 'node2 5ms jitter'; allowed: words such as"),
        ("loss: node2 120%", "fault.loss.share: found '120%'; allowed: more than 0 and at most 100%"),
        ("rate: node2 100", "fault.rate.at: found the number 100; allowed: a rate such as 500kbit"),
        ("partition: node0 / node0", "fault.partition: found 'node0 / node0'; allowed: sets that do not see"),
        ("network: {racks: {a: [node0]}}", "`racks` needs the profile datacenter"),
        ("network: {jitter: 1ms}", "`jitter` needs a delay"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        fault(text)
    assert message in caught.value.message


# -- partitions


def test_sets_do_not_see_each_other() -> None:
    assert find_drops("node0,node1 / node2", NODES[:3]) == {
        "node0": ("node2",),
        "node1": ("node2",),
        "node2": ("node0", "node1"),
    }
    assert find_drops("halves", NODES[:3]) == find_drops("node0,node1 / node2", NODES[:3])
    assert find_drops("isolate node1", NODES[:3]) == {
        "node1": ("node0", "node2"),
        "node0": ("node1",),
        "node2": ("node1",),
    }


def test_one_way_leaves_the_way_back() -> None:
    assert find_drops("one-way node2 -> node0", NODES) == {"node0": ("node2",)}
    assert told(golden(1)) == {"node0": {"from": {"node2": {"drop": 1.0}}}}


def test_a_bridge_sees_both_halves() -> None:
    assert find_drops("bridge node1", NODES) == {"node0": ("node3",), "node2": ("node3",), "node3": ("node0", "node2")}


def test_in_a_ring_each_sees_its_neighbours() -> None:
    five = [f"node{rank}" for rank in range(5)]
    assert find_drops("ring", five)["node0"] == ("node2", "node3")
    assert all(len(dropped) == 2 for dropped in find_drops("ring", five).values())


@pytest.mark.parametrize(
    "text",
    ["node0,node1 / node2", "halves", "ring", "isolate node1", "bridge node1", "one-way node0 -> node1"],
)
def test_each_shape_has_words(text: str) -> None:
    assert checked_partition(f"  {text.replace(',', ' , ')} ") == text
    assert find_drops(text, NODES)


def test_a_partition_that_drops_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=golden(1)):
        find_drops("ring", NODES[:2])


def test_a_map_says_any_partition() -> None:
    found = fault("partition: {node0: [node1, node2]}")
    assert str(found) == golden(1)
    assert found.what.nodes == ("node0", "node1", "node2")
    assert by_name(found.what.tables(ADDRESSES)) == {
        "node0": {"from": {"node1": {"drop": 1.0}, "node2": {"drop": 1.0}}}
    }


# -- networks


def test_the_more_exact_is_meant() -> None:
    network = network_of(
        {
            "rate": "1gbit",
            "delay": "1ms",
            "links": {
                "node2 -> node0": {"delay": "9ms"},
                "node2": {"delay": "5ms"},
                "node2 - node0": {"delay": "7ms", "rate": "10mbit"},
            },
        }
    )
    found = by_name(network.tables(ADDRESSES))
    assert {node: said["rate_bits_per_s"] for node, said in found.items()} == dict.fromkeys(NODES, 1e9)
    assert found["node2"]["to"] == {
        "node0": {"delay_s": pytest.approx(0.009), "rate_bits_per_s": 1e7},
        "node1": {"delay_s": 0.005},
        "node3": {"delay_s": 0.005},
    }
    assert found["node0"]["to"] == {
        "node1": {"delay_s": 0.001},
        "node2": {"delay_s": 0.007, "rate_bits_per_s": 1e7},
        "node3": {"delay_s": 0.001},
    }


def test_two_nodes_of_a_way_each_add_what_is_theirs() -> None:
    network = network_of(
        {"links": {"node0": {"delay": "1ms", "loss": "10%"}, "node1": {"delay": "2ms", "loss": "10%"}}}
    )
    found = by_name(network.tables(ADDRESSES))
    assert found["node0"]["to"]["node1"]["delay_s"] == pytest.approx(0.003)
    assert found["node1"]["from"]["node0"]["loss"] == pytest.approx(0.19)
    assert found["node3"]["to"]["node1"] == {"delay_s": 0.002}


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_tells_every_node(name: str) -> None:
    found = by_name(network_of(name).tables(ADDRESSES))
    assert found.keys() == ADDRESSES.keys()
    assert all(len(said["to"]) == 3 and said["rate_bits_per_s"] for said in found.values())


def test_in_a_datacenter_racks_are_fast_within_and_slow_between() -> None:
    said = {"profile": "datacenter", "racks": {"a": ["node0", "node3"], "b": ["node1", "node2"]}}
    to = by_name(network_of(said).tables(ADDRESSES))["node0"]["to"]
    assert to == {"node1": {"rate_bits_per_s": 1e9}, "node2": {"rate_bits_per_s": 1e9}, "node3": {}}


# -- what several conditions are together


def test_conditions_of_the_same_packets_are_one() -> None:
    one = {"rate_bits_per_s": 1e8, "delay_s": 0.1, "loss": 0.5}
    assert combine_conditions(one, {"rate_bits_per_s": 1e7, "delay_s": 0.2, "loss": 0.5, "drop": 1.0}) == {
        "rate_bits_per_s": 1e7,
        "delay_s": pytest.approx(0.3),
        "loss": 0.75,
        "drop": 1.0,
    }
    assert combine_conditions(one, {}) == one


def test_the_order_of_conditions_makes_no_difference() -> None:
    parts = [
        {"to": {"10.0.0.3": {"delay_s": 0.1}}, "from": {}, "rate_bits_per_s": 1e8},
        {"to": {"10.0.0.3": {"delay_s": 0.2}}, "from": {"10.0.0.4": {"drop": 1.0}}},
        {"to": {}, "from": {}, "rate_bits_per_s": 1e7, "no_names": True},
    ]
    assert merge_parts(parts) == merge_parts(parts[::-1])
    assert merge_parts(parts)["rate_bits_per_s"] == 1e7
    assert merge_parts(parts)["no_names"]
    assert merge_parts([]) == {"to": {}, "from": {}, "rate_bits_per_s": None, "no_names": False}


def test_names_cannot_be_broken_on_a_strict_cluster_whose_nodes_ask_nobody() -> None:
    asked = [fault("dns: node1")]
    usual, strict = (unmade_cluster(Shape(nodes=2, strict=strict), "c") for strict in (False, True))
    refuse_faults(asked, "s", replace(usual, engine="docker"), 2, 2)
    with pytest.raises(UsageError, match=golden(1)):
        refuse_faults(asked, "s", replace(strict, engine="docker"), 2, 2)
