"""What an engine has for nodes, by what it says of itself, and what it refuses."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from lab.engine.docker.request import capacity_of, cost_of
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape
from lab.plan.limits import refuse_excess_nodes
from tests.golden import golden

HERE = {"Name": os.uname().nodename}
SHAPE = Shape(nodes=64)


def test_of_this_machine_the_engine_has_what_is_left_and_of_another_one_nobody_knows():
    capacity = capacity_of(HERE)
    assert capacity.memory_bytes is not None
    assert capacity.threads is not None
    assert capacity_of({"Name": "elsewhere"}) == (None, None, None, 1023)


@pytest.mark.parametrize(
    ("pools", "most"),
    [(None, 1023), ([], 1023), ([{"Base": "10.0.0.0/8", "Size": 24}, {"Base": "172.20.0.0/16", "Size": 28}], 13)],
)
def test_a_network_has_as_many_addresses_as_the_narrowest_pool_and_a_bridge_allow(pools: list | None, most: int):
    assert capacity_of({"DefaultAddressPools": pools}).addresses == most


def test_nodes_without_an_address_are_refused_with_how_many_would_have_one():
    capacity = capacity_of({"DefaultAddressPools": [{"Base": "10.0.0.0/8", "Size": 27}]})
    refuse_excess_nodes(29, 1, capacity, cost_of(SHAPE))
    message = "64 nodes x 1 rank need about 64 addresses in one network, but this machine has 29: at most 29 nodes fit"
    with pytest.raises(ClusterUnfit, match=message):
        refuse_excess_nodes(64, 1, capacity, cost_of(SHAPE))


@pytest.mark.features
def test_nodes_that_import_torch_themselves_take_more_than_those_of_a_zygote(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LAB_DOCKER_ZYGOTE", raising=False)
    capacity = capacity_of({})._replace(memory_bytes=8_000_000_000)
    refuse_excess_nodes(64, 1, capacity, cost_of(SHAPE))
    with pytest.raises(ClusterUnfit, match=golden(1)):
        refuse_excess_nodes(64, 1, capacity, cost_of(replace(SHAPE, image="mine:1")))
