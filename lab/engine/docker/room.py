"""What a Docker engine has left for nodes, and what they take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lab.engine.docker.zygote import uses_zygote
from lab.engine.local.room import room_here
from lab.plan.cluster import Shape
from lab.plan.room import NodeCost, Room

_FORKED = NodeCost(node_bytes=20_000_000, shared_bytes=400_000_000, node_threads=16)
_ALONE = NodeCost(node_bytes=160_000_000, shared_bytes=0, node_threads=16)
"""Estimates from measurements: what is charged to a node at rest, 10 MB or 150, the engine's own process for it with
its 13 threads, and what its network takes; and a zygote."""
_PORTS = 1023
"""A bridge of Linux has so many, and each node has one."""
_NOT_FOR_NODES = 3
"""The first and the last address of a network, and the machine's own."""


def cost_of(shape: Shape) -> NodeCost:
    """What a node of such a cluster takes."""
    return _FORKED if uses_zygote(shape) else _ALONE


def is_here(facts: Mapping[str, Any]) -> bool:
    """Whether an engine, by what it says of itself, is on this machine."""
    return facts.get("Name") == os.uname().nodename


def room_for(facts: Mapping[str, Any]) -> Room:
    """What an engine has left, by what it says of itself; of another machine nobody knows more than its addresses."""
    sizes = [int(pool["Size"]) for pool in facts.get("DefaultAddressPools") or ()]
    addresses = min([_PORTS, *(2 ** (32 - size) - _NOT_FOR_NODES for size in sizes if size <= 32)])
    room = room_here(cgroups=None) if is_here(facts) else Room()
    return room._replace(addresses=max(0, addresses))
