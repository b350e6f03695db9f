"""Make a cluster of containers, and start containers again."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import filters
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import HELLO, closing_channels, wait_ready
from lab.errors import ClusterError, ClusterUnfit
from lab.feature import hook
from lab.node.messages import wire
from lab.node.messages.agent import Neighbours
from lab.plan.cluster import Node
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
        connection.ask("POST", "/networks/create", network)
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
    identity = connection.ask("POST", "/networks/create", network)["Id"]
    chosen = connection.ask("GET", f"/networks/{identity}")["IPAM"]["Config"]
    connection.request("DELETE", f"/networks/{identity}")
    whole = next(ipaddress.ip_network(one["Subnet"]) for one in chosen if ":" not in one["Subnet"])
    assert isinstance(whole, ipaddress.IPv4Network)
    subnet = small_subnet(whole, nodes)
    given = {"Subnet": str(subnet), "Gateway": str(subnet[1])}
    connection.ask("POST", "/networks/create", {**network, "IPAM": {"Driver": "default", "Config": [given]}})
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


def with_addresses(nodes: Sequence[Mapping[str, Any]], subnet: ipaddress.IPv4Network | None) -> list[dict[str, Any]]:
    """Requests for containers, each with its address, the names of all, and the range from which its peers come."""
    if subnet is None:
        return [dict(body) for body in nodes]
    addresses = [str(subnet[2 + rank]) for rank in range(len(nodes))]
    named = [(str(body["Hostname"]), address) for body, address in zip(nodes, addresses, strict=True)]
    hosts = [host for name, at in named for host in (f"{name}:{at}", f"{name}{_MAPPED}:::ffff:{at}")]
    bodies = deepcopy([dict(body) for body in nodes])
    for body, address in zip(bodies, addresses, strict=True):
        body["Cmd"] = [json.dumps({**json.loads(body["Cmd"][0]), "peers": (addresses[0], addresses[-1])})]
        body["HostConfig"]["ExtraHosts"] = hosts
        for endpoint in body["NetworkingConfig"]["EndpointsConfig"].values():
            endpoint["IPAMConfig"] = {"IPv4Address": address}
    return bodies


FROM_NODES = 16
"""Fewer are 210 pairs at most, of the 1,024 that a kernel remembers where nobody says otherwise."""
_DEADLINE_S = 60.0


def introduce(connection: Connection, cluster: str, channels: Sequence[Channel]) -> None:
    """Tell the nodes of these channels, whose agents are ready, where the others of their cluster are."""
    known = {
        container["Id"]: (network["IPAddress"], network["MacAddress"])
        for container in connection.containers([*filters(cluster), label.NODE])
        for network in container.get("NetworkSettings", {}).get("Networks", {}).values()
        if network.get("IPAddress") and network.get("MacAddress")
    }
    if len(known) < FROM_NODES:
        return
    for channel in channels:
        if own := known.get(channel.node.handle):
            others = {address: mac for address, mac in known.values() if address != own[0]}
            channel.send(wire.encode_message(Neighbours(own[0], others)) + HELLO)
    wait_ready(channels, _DEADLINE_S, lambda _: None)


_READY_TIMEOUT_S = 180.0


def create(connection: Connection, cluster: str, requests: Sequence[Request], announce: Announce) -> Channel | None:
    """Make network, volume and containers, and wait until every agent has imported torch.

    Returns:
        The channel to the first node that ended instead, or None if all are ready.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network, volume, *containers = (request.body for request in requests)
    asked = [body for body in containers if label.NODE in body["Labels"]]
    nodes = with_addresses(asked, make_network(connection, network, len(asked)))
    connection.ask("POST", "/volumes/create", volume)
    starter = Starter(connection)
    for body in containers[len(nodes) :]:
        starter = hook("zygote").make_starter(connection, body, network["Name"], announce)
    announce(f"starting {plural(len(nodes), 'node')} of image {asked[0]['Image']}")
    with closing_channels(list[DockerChannel]()) as channels:
        channels += connection.together(
            lambda rank: _make_node(connection, starter, rank, network["Name"], nodes[rank]), range(len(nodes))
        )
        return _await_agents(connection, starter, cluster, channels, announce)


def _await_agents(
    connection: Connection, starter: Starter, cluster: str, channels: Sequence[DockerChannel], announce: Announce
) -> Channel | None:
    """Wait until every agent is ready that was started on these channels; returns that of a node that ended instead."""
    starter.finish(channels, announce)
    lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
    if lost is None:
        introduce(connection, cluster, channels)
    return lost


def _make_node(
    connection: Connection, starter: Starter, node_rank: int, network: str, body: Mapping[str, Any]
) -> DockerChannel:
    name = body["Hostname"]
    identity = connection.create_container(body, f"{network}-{name}")
    return starter.start(Node(name=name, node_rank=node_rank, handle=identity, address=""))


class Starter:
    """Starts the nodes of a cluster, each of which imports torch itself; that of a feature has their agents forked.

    Args:
        connection: to the engine.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def start(self, node: Node) -> DockerChannel:
        """Start a container that does not run; the stream to it, on which its agent will say that it is ready."""
        channel = DockerChannel(node, self.connection.attach(node.handle))
        self.connection.act(node.handle, "start")
        with suppress(OSError):  # it has ended already: whoever waits for it finds out why
            self.send_agent(channel)
        return channel

    def send_agent(self, channel: DockerChannel) -> None:
        """Send a node that was just started its agent.

        Raises:
            OSError: it has ended.
        """
        channel.send(sent_first() + HELLO)

    def finish(self, channels: Sequence[DockerChannel], announce: Announce) -> None:
        """Do what is left to do for these nodes, which were all started."""
        announce("importing torch on every node")


def start(
    connection: Connection, cluster: str, nodes: Sequence[Node], announce: Announce, *, forked: bool
) -> Channel | None:
    """Start containers that do not run, and wait until their agents are there; returns the channel to one that ended.

    `forked`: whether a zygote forks their agents.

    Raises:
        LabError: one did not start.
    """
    announce(f"starting {plural(len(nodes), 'node')} again")
    zygote = hook("zygote") if forked else None
    starter = zygote.find_starter(connection, cluster) if zygote else Starter(connection)
    with closing_channels(list[DockerChannel]()) as channels:
        for node in nodes:  # one after the other: addresses are given in this order
            try:
                channels.append(starter.start(node))
            except Refused as refused:
                raise ClusterError(f"{node.name} cannot be started: {refused.explanation}", refused.hint) from refused
        return _await_agents(connection, starter, cluster, channels, announce)
