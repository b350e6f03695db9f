"""Telling nodes of large clusters one another's hardware addresses, which their kernel does not remember all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.state import filters
from lab.engine.protocol import Channel
from lab.engine.ready import HELLO, wait_ready
from lab.node.messages import wire
from lab.node.messages.agent import Do

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
