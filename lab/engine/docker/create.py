"""Make a cluster of containers, and start containers again."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import STOPPED_SUFFIX, filters, find, node_state
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Channel, Request, Throttle
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit, LabError
from lab.feature import hook
from lab.node.messages import wire
from lab.node.messages.agent import Neighbours
from lab.plan.cluster import ClusterInfo, Node
from lab.plan.limits import Machine
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
    chosen = connection.ask("GET", f"/networks/{identity}")["IPAM"]["Config"]
    connection.request("DELETE", f"/networks/{identity}")
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
    return str(connection.ask("POST", "/networks/create", network)["Id"])


def with_addresses(nodes: Sequence[Mapping[str, Any]], subnet: ipaddress.IPv4Network | None) -> list[dict[str, Any]]:
    """Requests for containers, each with its address, the names of all, and the range from which its peers come."""
    if subnet is None:
        return [dict(body) for body in nodes]
    addresses = [str(subnet[2 + rank]) for rank in range(len(nodes))]
    named = [(str(body["Hostname"]), address) for body, address in zip(nodes, addresses, strict=True)]
    hosts = [host for name, at in named for host in (f"{name}:{at}", f"{name}{_MAPPED}:::ffff:{at}")]
    peers = addresses[0], addresses[-1]
    return [
        {
            **body,
            "Cmd": [json.dumps({**json.loads(body["Cmd"][0]), "peers": peers})],
            "HostConfig": {**body["HostConfig"], "ExtraHosts": hosts},
            "NetworkingConfig": {
                "EndpointsConfig": {
                    name: {**endpoint, "IPAMConfig": {"IPv4Address": address}}
                    for name, endpoint in body["NetworkingConfig"]["EndpointsConfig"].items()
                }
            },
        }
        for body, address in zip(nodes, addresses, strict=True)
    ]


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
            channel.send(wire.encode(Neighbours(own[0], others)) + HELLO)
    wait_ready(channels, _DEADLINE_S, lambda _: None)


def _addresses(containers: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """By container: its address, and its hardware address."""
    for container in containers:
        for network in container.get("NetworkSettings", {}).get("Networks", {}).values():
            if network.get("IPAddress") and network.get("MacAddress"):
                yield container["Id"], (network["IPAddress"], network["MacAddress"])


_READY_TIMEOUT_S = 180.0


def create(connection: Connection, cluster: str, requests: Sequence[Request], announce: Announce) -> ClusterInfo:
    """Make network, volume and containers, and wait until every agent has imported torch.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network, volume, *containers = (request.body for request in requests)
    asked = [body for body in containers if label.NODE in body["Labels"]]
    image = asked[0]["Image"]
    subnet = make_network(connection, network, len(asked))
    nodes = with_addresses(asked, subnet)
    connection.ask("POST", "/volumes/create", volume)
    starter = Starter(connection)
    for body in containers[len(nodes) :]:
        starter = hook("zygote").make_starter(connection, body, network["Name"], announce)
    announce(f"starting {plural(len(nodes), 'node')} of image {image}")
    channels = connection.together(
        lambda rank: _make_node(connection, starter, rank, network["Name"], nodes[rank]), range(len(nodes))
    )
    await_agents(connection, starter, cluster, channels, image, announce)
    return find(connection, cluster)[0]


def await_agents(
    connection: Connection,
    starter: Starter,
    cluster: str,
    channels: Sequence[DockerChannel],
    image: str,
    announce: Announce,
) -> None:
    """Wait until every agent is ready that was started on these channels, and close them.

    Raises:
        LabError: a node ended instead.
    """
    try:
        starter.finish(channels, announce)
        lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
        if lost is None:
            introduce(connection, cluster, channels)
    finally:
        for channel in channels:
            channel.close()
    if lost is not None:
        raise explain_lost(connection, lost, image)


def _make_node(
    connection: Connection, starter: Starter, node_rank: int, network: str, body: Mapping[str, Any]
) -> DockerChannel:
    name = body["Hostname"]
    identity = connection.create_container(body, f"{network}-{name}")
    return starter.start(Node(name=name, node_rank=node_rank, handle=identity, address=""))


def explain_lost(connection: Connection, channel: Channel, image: str) -> LabError:
    """Why a node ended while it was starting."""
    state = node_state(connection, channel.node)
    said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if state.exit_code == boot.NO_TORCH:
        return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
    hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
    return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)


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


_NOT_RUNNING = 409


def stop(connection: Connection, nodes: Sequence[Node]) -> None:
    """Kill containers where they run, and mark them as stopped.

    Raises:
        Refused: the engine would not.
    """
    connection.together(lambda node: _stop(connection, node), nodes)


def start(connection: Connection, cluster: ClusterInfo, nodes: Sequence[Node], announce: Announce) -> None:
    """Start containers that do not run, and wait until their agents are there.

    Raises:
        LabError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again")
    for node in nodes:  # one after the other: addresses are given in this order
        _name(connection, node, marked=False)
    made, channels = connection.inspect(nodes[0].handle), list[DockerChannel]()
    zygote = hook("zygote") if made["HostConfig"]["Init"] is False else None
    starter = zygote.find_starter(connection, cluster.name) if zygote else Starter(connection)
    try:
        for node in nodes:
            channels.append(starter.start(node))
    except Refused as refused:
        for channel in channels:
            channel.close()
        raise ClusterError(f"{node.name} cannot be started: {refused.explanation}", refused.hint) from refused
    await_agents(connection, starter, cluster.name, channels, made["Config"]["Image"], announce)


def _stop(connection: Connection, node: Node) -> None:
    try:
        connection.act(node.handle, "kill")
    except Refused as refused:
        if refused.status != _NOT_RUNNING:
            raise
    _name(connection, node, marked=True)


def _name(connection: Connection, node: Node, *, marked: bool) -> None:
    """Give a container the name that it has while it is stopped, or the one that it was made with."""
    has = str(connection.inspect(node.handle)["Name"]).lstrip("/")
    wanted = has.removesuffix(STOPPED_SUFFIX) + (STOPPED_SUFFIX if marked else "")
    if wanted != has:
        connection.act(node.handle, f"rename?name={wanted}")


_PER_CORE = 1_000_000_000


def paused(connection: Connection, node: Node) -> bool:
    """Whether a container stands still."""
    return bool(connection.inspect(node.handle)["State"]["Paused"])


def limit(connection: Connection, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
    """Let a container use no more; swap is none of it.

    Raises:
        Refused: the engine would not.
    """
    limits = {} if cpus is None else {"NanoCpus": int(cpus * _PER_CORE)}
    limits |= {} if memory_bytes is None else {"Memory": memory_bytes, "MemorySwap": memory_bytes}
    connection.act(node.handle, "update", limits)


def throttle(connection: Connection, node: Node, machine: Machine) -> Throttle:
    """What a container may use now."""
    said = connection.inspect(node.handle)["HostConfig"]
    return Throttle((said["NanoCpus"] / _PER_CORE) or machine.cores, said["Memory"] or machine.memory_bytes)
