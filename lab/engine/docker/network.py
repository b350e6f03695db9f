"""Addresses that are known before a container is made, so that a strict node needs no resolver to find its peers.

The engine gives a container an address of one's choice only in a subnet of one's choice, and knows best which subnet is
free. So it makes the network once to choose, and once more in the first part of what it chose.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused
from lab.engine.docker.state import filters
from lab.engine.protocol import Channel
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterUnfit
from lab.node.messages import wire
from lab.node.messages.agent import Do
from lab.words import plural

_ATTEMPTS = 8
_WITHOUT_A_NODE = 3
"""Addresses of a subnet: its own, the gateway, which no device has, and that for broadcasts."""
_MAPPED = ".mapped"
"""A name for the address as sockets of IPv6 see it: PyTorch's store asks for one, and warns where there is none."""
_OVERLAPS = "overlap"
"""In what the engine says where somebody else has taken the subnet meanwhile."""


def make_network(connection: Connection, network: Mapping[str, Any], nodes: int) -> ipaddress.IPv4Network | None:
    """Make a network; returns the subnet in which its nodes are to have addresses, None where the engine gives them.

    Raises:
        ClusterUnfit: the engine's own subnets are too small for so many nodes.
        Refused: the engine does not make it.
    """
    if not network["Internal"]:
        _create(connection, network)
        return None
    import tenacity

    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, Refused) and _OVERLAPS in error.explanation),
        reraise=True,
    )
    return attempts(_make_small, connection, network, nodes)


def _make_small(connection: Connection, network: Mapping[str, Any], nodes: int) -> ipaddress.IPv4Network:
    """Make a network with no more addresses than its nodes need: each may cost the machine an entry for a neighbour."""
    identity = _create(connection, network)
    chosen = connection.call(lambda: connection.api.inspect_network(identity))["IPAM"]["Config"]
    connection.call(lambda: connection.api.remove_network(identity))
    whole = next(ipaddress.ip_network(one["Subnet"]) for one in chosen if ":" not in one["Subnet"])
    assert isinstance(whole, ipaddress.IPv4Network)
    subnet = small_subnet(whole, nodes)
    given = {"Subnet": str(subnet), "Gateway": str(subnet[1])}
    _create(connection, {**network, "IPAM": {"Driver": "default", "Config": [given]}})
    return subnet


def small_subnet(whole: ipaddress.IPv4Network, nodes: int) -> ipaddress.IPv4Network:
    """The first part of a subnet that has an address for each node.

    Raises:
        ClusterUnfit: all of it has too few.
    """
    length = whole.max_prefixlen - (nodes + _WITHOUT_A_NODE - 1).bit_length()
    if length < whole.prefixlen:
        raise ClusterUnfit(
            f"the engine's networks, such as {whole}, have too few addresses for {plural(nodes, 'node')}",
            "ask for fewer nodes, or give the engine larger `default-address-pools`",
        )
    return next(whole.subnets(new_prefix=length))


def _create(connection: Connection, network: Mapping[str, Any]) -> str:
    made = connection.call(
        lambda: connection.api.create_network(
            network["Name"],
            driver=network["Driver"],
            check_duplicate=network["CheckDuplicate"],
            internal=network["Internal"],
            options=network["Options"],
            labels=network["Labels"],
            ipam=network.get("IPAM"),
        )
    )
    return str(made["Id"])


def with_addresses(nodes: Sequence[Mapping[str, Any]], subnet: ipaddress.IPv4Network | None) -> list[dict[str, Any]]:
    """Requests for containers, each with its address, the names of all, and the range from which its peers come."""
    if subnet is None:
        return [dict(body) for body in nodes]
    given = [str(subnet[2 + rank]) for rank in range(len(nodes))]
    hosts = [
        host
        for body, address in zip(nodes, given, strict=True)
        for host in (f"{body['Hostname']}:{address}", f"{body['Hostname']}{_MAPPED}:::ffff:{address}")
    ]
    return [
        _with_address(body, address, hosts, (given[0], given[-1])) for body, address in zip(nodes, given, strict=True)
    ]


def _with_address(
    body: Mapping[str, Any], address: str, hosts: Sequence[str], peers: tuple[str, str]
) -> dict[str, Any]:
    endpoints = {
        name: {**endpoint, "IPAMConfig": {"IPv4Address": address}}
        for name, endpoint in body["NetworkingConfig"]["EndpointsConfig"].items()
    }
    config = {**json.loads(body["Cmd"][0]), "peers": peers}
    return {
        **body,
        "Cmd": [json.dumps(config)],
        "HostConfig": {**body["HostConfig"], "ExtraHosts": [*hosts]},
        "NetworkingConfig": {"EndpointsConfig": endpoints},
    }


FROM_NODES = 16
"""Fewer are 210 pairs at most, of the 1,024 that a kernel remembers where nobody says otherwise."""
_DEADLINE_S = 60.0


def introduce(connection: Connection, cluster: str, channels: Sequence[Channel]) -> None:
    """Tell the nodes of these channels, whose agents are ready, where the others of their cluster are."""
    known = dict(_addresses(connection.containers([*filters(cluster), label.NODE])))
    if len(known) < FROM_NODES:
        return
    hardware = dict(known.values())
    for channel in channels:
        own = known.get(channel.node.handle)
        if own is not None:
            others = {address: mac for address, mac in hardware.items() if address != own[0]}
            channel.send(wire.encode(Do("neighbours", "neighbours", {"address": own[0], "hardware": others})) + HELLO)
    wait_ready(channels, _DEADLINE_S, lambda _: None)


def _addresses(containers: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """By container: its address, and its hardware address."""
    for container in containers:
        for network in container.get("NetworkSettings", {}).get("Networks", {}).values():
            if network.get("IPAddress") and network.get("MacAddress"):
                yield container["Id"], (network["IPAddress"], network["MacAddress"])
