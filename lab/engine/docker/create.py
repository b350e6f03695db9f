"""Making a cluster of containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker import boot
from lab.engine.docker.addresses import make_network, with_addresses
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.neighbours import introduce
from lab.engine.docker.start import Starter
from lab.engine.docker.state import find, node_state
from lab.engine.docker.zygote import NAME, make_zygote
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import wait_ready
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
    asked = [body for body in containers if label.NODE in body["Labels"]]
    image = asked[0]["Image"]
    api = connection.api
    subnet = make_network(connection, network, len(asked))
    nodes = with_addresses(asked, subnet)
    connection.call(
        lambda: api.create_volume(volume["Name"], labels=volume["Labels"], driver_opts=volume["DriverOpts"])
    )
    zygote = None
    for body in containers[len(nodes) :]:
        zygote = make_zygote(connection, body, f"{network['Name']}-{NAME}", announce)
    announce(f"starting {plural(len(nodes), 'node')} of image {image}")
    starter = Starter(connection, zygote, first=len(containers) > len(nodes))
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
        starter.await_zygote(channels, announce)
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
    created = connection.call(lambda: connection.api.create_container_from_config(body, f"{network}-{name}"))  # type: ignore[no-untyped-call]
    return starter.start(Node(name=name, node_rank=node_rank, handle=created["Id"], address=""))


def explain_lost(connection: Connection, channel: Channel, image: str) -> LabError:
    """Why a node ended while it was starting."""
    state = node_state(connection, channel.node)
    said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if state.exit_code == boot.NO_TORCH:
        return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
    hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
    return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)
