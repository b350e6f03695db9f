"""Addresses of the nodes of a strict cluster, without an engine."""

from __future__ import annotations

import ipaddress
import json

import pytest

from lab.engine.docker.create import small_subnet, with_addresses
from lab.engine.docker.request import requests_for
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape
from tests.golden import golden

WHOLE = ipaddress.IPv4Network("172.19.0.0/16")


@pytest.mark.parametrize(("nodes", "length"), [(1, 30), (2, 29), (5, 29), (6, 28), (13, 28), (14, 27), (64, 25)])
def test_a_subnet_has_as_few_addresses_as_its_nodes_need(nodes: int, length: int) -> None:
    assert small_subnet(WHOLE, nodes) == ipaddress.ip_network(f"172.19.0.0/{length}")


def test_more_nodes_than_the_engines_networks_have_addresses_for_are_refused() -> None:
    with pytest.raises(ClusterUnfit, match=golden(1)):
        small_subnet(ipaddress.IPv4Network("10.0.0.0/29"), 6)


def test_each_node_knows_the_names_of_all_and_the_range_of_their_addresses() -> None:
    requests = requests_for("c", Shape(nodes=3, strict=True), owner="me@here", run=None)
    nodes = with_addresses([request.body for request in requests[3:]], small_subnet(WHOLE, 3))

    assert [node["NetworkingConfig"]["EndpointsConfig"]["lab-c"]["IPAMConfig"]["IPv4Address"] for node in nodes] == [
        "172.19.0.2",
        "172.19.0.3",
        "172.19.0.4",
    ]
    for node in nodes:
        assert node["HostConfig"]["ExtraHosts"][::2] == ["node0:172.19.0.2", "node1:172.19.0.3", "node2:172.19.0.4"]
        assert node["HostConfig"]["ExtraHosts"][1] == "node0.mapped:::ffff:172.19.0.2"
        assert json.loads(node["Cmd"][0])["peers"] == ["172.19.0.2", "172.19.0.4"]


def test_a_usual_cluster_leaves_addresses_to_the_engine() -> None:
    asked = [request.body for request in requests_for("c", Shape(nodes=2), owner="me@here", run=None)[2:]]
    assert with_addresses(asked, None) == asked
