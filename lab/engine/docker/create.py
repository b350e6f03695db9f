"""Making a cluster of containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.engine.docker import boot
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.state import find, node_state
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterError, ImageUnfit, LabError
from lab.plan.cluster import ClusterInfo, Node
from lab.words import plural

_READY_TIMEOUT_S = 180.0


def create(connection: Connection, cluster: str, requests: Sequence[Request], announce: Announce) -> ClusterInfo:
    """Make network, volume and containers, and wait until every agent has imported torch.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network, volume, *containers = (request.body for request in requests)
    image = containers[0]["Image"]
    api = connection.api
    connection.call(
        lambda: api.create_network(
            network["Name"],
            driver=network["Driver"],
            check_duplicate=network["CheckDuplicate"],
            internal=network["Internal"],
            options=network["Options"],
            labels=network["Labels"],
        )
    )
    connection.call(
        lambda: api.create_volume(volume["Name"], labels=volume["Labels"], driver_opts=volume["DriverOpts"])
    )
    announce(f"starting {plural(len(containers), 'node')} of image {image}")
    channels = connection.together(
        lambda rank: _make_node(connection, rank, network["Name"], containers[rank]), range(len(containers))
    )
    await_agents(connection, channels, image, announce)
    return find(connection, cluster)[0]


def await_agents(connection: Connection, channels: Sequence[Channel], image: str, announce: Announce) -> None:
    """Wait until every agent that was sent on these channels has imported torch, and close them.

    Raises:
        LabError: a node ended instead.
    """
    try:
        announce("importing torch on every node")
        lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
    finally:
        for channel in channels:
            channel.close()
    if lost is not None:
        raise _explain_lost(connection, lost, image)


def _make_node(connection: Connection, node_rank: int, network: str, body: Mapping[str, Any]) -> DockerChannel:
    name = body["Hostname"]
    created = connection.call(lambda: connection.api.create_container_from_config(body, f"{network}-{name}"))  # type: ignore[no-untyped-call]
    return start_container(connection, Node(name=name, node_rank=node_rank, handle=created["Id"], address=""))


def start_container(connection: Connection, node: Node) -> DockerChannel:
    """Start a container and send it its agent; the stream to it, on which that will say that it is ready."""
    channel = DockerChannel(node, connection.attach(node.handle))
    connection.start(node.handle)
    with suppress(OSError):  # it has ended already: whoever waits for it finds out why
        channel.send(sent_first() + HELLO)
    return channel


def _explain_lost(connection: Connection, channel: Channel, image: str) -> LabError:
    state = node_state(connection, channel.node)
    said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if state.exit_code == boot.NO_TORCH:
        return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
    hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
    return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)
