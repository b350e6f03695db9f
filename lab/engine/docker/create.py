"""Create a cluster of containers, and start containers again."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import owner_labels
from lab.engine.payload import initial_input
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import HELLO, closing_channels, wait_ready
from lab.errors import ClusterError, ClusterUnfit
from lab.feature import find_hook
from lab.node.messages import wire
from lab.node.messages.agent import Neighbours
from lab.plan.cluster import Node
from lab.polling import map_parallel
from lab.words import format_count

_ATTEMPTS = 8
_WITHOUT_A_NODE = 3
"""Reserved addresses of a subnet: its own, the gateway, and that for broadcasts."""
_MAPPED = ".mapped"
"""A name for the address in IPv6 form: PyTorch's store looks one up, and warns if it is missing."""
_OVERLAPS = "overlap"
"""Part of the engine's message when another network has taken the subnet meanwhile."""


def make_network(connection: Connection, network: Mapping[str, Any], nodes: int) -> ipaddress.IPv4Network | None:
    """Create a network; return the subnet for its nodes' addresses, None if the engine assigns them.

    Raises:
        ClusterUnfit: the engine's own subnets are too small for so many nodes.
        Refused: the engine does not create it.
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
    """Create a network with no more addresses than its nodes need: each may cost the machine a neighbour entry."""
    identity = connection.ask("POST", "/networks/create", network)["Id"]
    chosen = connection.ask("GET", f"/networks/{identity}")["IPAM"]["Config"]
    connection.request("DELETE", f"/networks/{identity}")
    whole = next(ipaddress.ip_network(one["Subnet"]) for one in chosen if ":" not in one["Subnet"])
    assert isinstance(whole, ipaddress.IPv4Network)
    subnet = small_subnet(whole, nodes)
    ipam_config = {"Subnet": str(subnet), "Gateway": str(subnet[1])}
    connection.ask("POST", "/networks/create", {**network, "IPAM": {"Driver": "default", "Config": [ipam_config]}})
    return subnet


def small_subnet(whole: ipaddress.IPv4Network, nodes: int) -> ipaddress.IPv4Network:
    """Return the first part of a subnet that has an address for each node.

    Raises:
        ClusterUnfit: the whole subnet has too few.
    """
    if (length := whole.max_prefixlen - (nodes + _WITHOUT_A_NODE - 1).bit_length()) < whole.prefixlen:
        why = f"the engine's networks, such as {whole}, have too few addresses for {format_count(nodes, 'node')}"
        raise ClusterUnfit(why, "use fewer nodes, or set larger `default-address-pools` in /etc/docker/daemon.json")
    return next(whole.subnets(new_prefix=length))


def with_addresses(nodes: Sequence[Mapping[str, Any]], subnet: ipaddress.IPv4Network | None) -> list[dict[str, Any]]:
    """Add to container requests each node's address, the names of all nodes, and their address range."""
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
"""Fewer nodes have at most 210 pairs, well below the 1,024 neighbours that a kernel keeps by default."""
_DEADLINE_S = 60.0


def send_neighbours(connection: Connection, cluster: str, channels: Sequence[Channel]) -> None:
    """Send the agents of these channels, which are ready, the addresses of their cluster's other nodes."""
    known = {
        container["Id"]: (network["IPAddress"], network["MacAddress"])
        for container in connection.containers([*owner_labels(cluster), label.NODE])
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


def create_cluster(
    connection: Connection, cluster: str, requests: Sequence[Request], announce: Announce
) -> Channel | None:
    """Create network, volumes, and containers, and wait until every agent has imported torch.

    Returns:
        The channel to the first node that ended instead, or None if all are ready.

    Raises:
        LabError: a node did not start; what was created still exists.
    """
    network, *others = (request.body for request in requests)
    volumes = [body for body in others if "DriverOpts" in body]
    containers = [body for body in others if "DriverOpts" not in body]
    asked = [body for body in containers if label.NODE in body["Labels"]]
    nodes = with_addresses(asked, make_network(connection, network, len(asked)))
    for volume in volumes:
        connection.ask("POST", "/volumes/create", volume)
    starter = Starter(connection)
    for body in containers[len(nodes) :]:
        starter = find_hook("zygote").make_starter(connection, body, network["Name"], announce)
    announce(f"starting {format_count(len(nodes), 'node')} of image {asked[0]['Image']}")
    with closing_channels(list[DockerChannel]()) as channels:

        def make(rank: int) -> DockerChannel:
            return _make_node(connection, starter, rank, network["Name"], nodes[rank])

        channels += map_parallel(make, range(len(nodes)))
        return _await_agents(connection, starter, cluster, channels, announce)


def _await_agents(
    connection: Connection, starter: Starter, cluster: str, channels: Sequence[DockerChannel], announce: Announce
) -> Channel | None:
    """Wait until the agents on these channels are ready; return the channel of a node that ended instead."""
    starter.finish(channels, announce)
    if (lost := wait_ready(channels, _READY_TIMEOUT_S, announce)) is None:
        send_neighbours(connection, cluster, channels)
    return lost


def _make_node(
    connection: Connection, starter: Starter, node_rank: int, network: str, body: Mapping[str, Any]
) -> DockerChannel:
    name = body["Hostname"]
    identity = connection.create_container(body, f"{network}-{name}")
    return starter.start(Node(name=name, node_rank=node_rank, handle=identity, address=""))


class Starter:
    """Starts nodes that each import torch; a feature has a starter whose zygote forks their agents.

    Args:
        connection: to the engine.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def start(self, node: Node) -> DockerChannel:
        """Start a container; return the stream on which its agent reports that it is ready."""
        channel = DockerChannel(node, *self.connection.attach(node.handle))
        self.connection.act(node.handle, "start")
        with suppress(OSError):  # it has ended already: waiting for it reports why
            self.send_agent(channel)
        return channel

    def send_agent(self, channel: DockerChannel) -> None:
        """Send the agent to a node that has just started.

        Raises:
            OSError: the node has ended.
        """
        channel.send(initial_input() + HELLO)

    def finish(self, channels: Sequence[DockerChannel], announce: Announce) -> None:
        """Finish starting these nodes."""
        announce("importing torch on every node")


def start_nodes(
    connection: Connection, cluster: str, nodes: Sequence[Node], announce: Announce, *, forked: bool
) -> Channel | None:
    """Start containers that do not run, and wait for their agents; return the channel of one that ended instead.

    Args:
        connection: to the engine.
        cluster: its name.
        nodes: to start.
        announce: called with each line of progress.
        forked: whether a zygote forks their agents.

    Raises:
        LabError: a node did not start.
    """
    announce(f"starting {format_count(len(nodes), 'node')} again")
    zygote = find_hook("zygote") if forked else None
    starter = zygote.find_starter(connection, cluster) if zygote else Starter(connection)
    with closing_channels(list[DockerChannel]()) as channels:
        for node in nodes:  # one after the other: the engine assigns addresses in this order
            try:
                channels.append(starter.start(node))
            except Refused as refused:
                raise ClusterError(f"cannot start {node.name}: {refused.explanation}", refused.hint) from refused
        return _await_agents(connection, starter, cluster, channels, announce)
