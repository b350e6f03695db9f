"""Removing containers, networks and volumes by their labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused
from lab.engine.docker.state import find_rest
from lab.engine.protocol import Removed
from lab.errors import ClusterError
from lab.words import format_duration

_DEADLINE_S = 60.0


def remove(connection: Connection, filters: list[str], settle_s: float) -> Removed:
    """Remove everything that carries these labels, until nothing does.

    Args:
        connection: to the engine.
        filters: labels in Docker's `name=value` form.
        settle_s: seconds during which nothing new may appear; a client that was killed may have left a request
            that the engine is still working on.

    Raises:
        ClusterError: something could not be removed; the message names it.
    """
    removed, end = Removed(), time.monotonic() + _DEADLINE_S
    quiet_since = time.monotonic()
    while True:
        once = _remove_once(connection, filters)
        removed += once
        now = time.monotonic()
        if once:
            quiet_since = now
        elif now - quiet_since >= settle_s:
            return removed
        if now > end:
            left = [item["Id"][:12] for item in connection.containers(filters)]
            what, within = ", ".join(left) or "a network or volume", format_duration(_DEADLINE_S)
            raise ClusterError(f"the engine did not remove {what} within {within}")
        if not once:
            time.sleep(0.1)


def _remove_once(connection: Connection, filters: list[str]) -> Removed:
    api = connection.api
    containers = connection.containers(filters)

    def each(items: list[dict[str, Any]], take_away: Callable[[dict[str, Any]], object]) -> int:
        return sum(connection.together(lambda item: _gone(connection, lambda: take_away(item)), items))

    def each_container(items: list[dict[str, Any]]) -> int:
        return each(items, lambda item: api.remove_container(item["Id"], force=True, v=True))

    zygotes = each_container([item for item in containers if label.ZYGOTE in item["Labels"]])  # it enters none any more
    nodes = each_container([item for item in containers if label.ZYGOTE not in item["Labels"]])
    networks, volumes = find_rest(connection, filters)
    names = {item["Labels"][label.CLUSTER] for item in (*containers, *networks, *volumes)}
    return Removed(
        clusters=tuple(sorted(names)),
        nodes=nodes or zygotes,
        networks=each(networks, lambda item: api.remove_network(item["Id"])),
        volumes=each(volumes, lambda item: api.remove_volume(item["Name"], force=True)),
    )


def _gone(connection: Connection, call: Callable[[], object]) -> int:
    """1 if the call removed something, 0 if it was gone or is still in use (the next round tries again)."""
    try:
        connection.call(call)
    except Refused as refused:
        if refused.status in (403, 404, 409):
            return 0
        raise
    return 1
