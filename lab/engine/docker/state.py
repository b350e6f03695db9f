"""Find a user's objects on a Docker engine by their labels, and remove them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, Refused
from lab.engine.protocol import Removed
from lab.errors import ClusterError
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Limits
from lab.polling import map_parallel, poll_until
from lab.words import format_duration, group_pairs, join_words

STOPPED_SUFFIX = ".stopped"
"""End of the name of a container that was stopped on purpose."""


def owner_labels(cluster: str | None) -> list[str]:
    """Return the labels of the owner's clusters, or of the one of this name, in Docker's `name=value` form."""
    return [f"{label.OWNER}={label.current_owner()}", *([f"{label.CLUSTER}={cluster}"] if cluster else [])]


def find_rest(connection: Connection, labels: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the engine's networks and volumes with these labels."""
    volumes: Any = connection.listed("volumes", {"label": labels})
    return connection.listed("networks", {"label": labels}), volumes["Volumes"] or []


def find_clusters(connection: Connection, engine: str, cluster: str | None) -> list[ClusterInfo]:
    """Return the owner's clusters, or the one of this name, by the labels of containers."""
    node_containers = connection.containers([*owner_labels(cluster), label.NODE])
    clusters = group_pairs((container["Labels"][label.CLUSTER], container) for container in node_containers)
    return [
        ClusterInfo(
            name=name,
            engine=engine,
            shape=Shape.from_json(labels[label.SHAPE]),
            nodes=tuple(sorted(map(_node_of, containers), key=lambda node: node.node_rank)),
            owner=label.current_owner(),
            run=labels.get(label.RUN),
            version=labels.get(label.VERSION, ""),
            limits=Limits.from_json(labels.get(label.LIMITS, "{}")),
        )
        for name, containers in sorted(clusters.items())
        for labels in [containers[0]["Labels"]]
    ]


def _node_of(container: Mapping[str, Any]) -> Node:
    """Return the node of a container, as it is listed."""
    name, state = container["Labels"][label.NODE], str(container["State"])
    networks = container.get("NetworkSettings", {}).get("Networks", {})
    if state == RUNNING:
        state = RUNNING if networks else "disconnected"
    elif any(name.endswith(STOPPED_SUFFIX) for name in container.get("Names") or ()):
        state = STOPPED
    rank, address = int(name.removeprefix("node")), next((one["IPAddress"] for one in networks.values()), "")
    return Node(name=name, node_rank=rank, handle=container["Id"], address=address, state=state)


_DEADLINE_S = 60.0
_POLL_S = 0.1
_IN_USE = (403, 409)


def remove_labelled(connection: Connection, labels: list[str], settle_s: float) -> Removed:
    """Remove everything with these labels, until nothing is left.

    Args:
        connection: to the engine.
        labels: in Docker's `name=value` form.
        settle_s: seconds during which nothing new may appear; the engine may still process the request of a killed
            client.

    Raises:
        ClusterError: an object could not be removed; the message names it and says why, the hint how to remove it.
    """
    removed, left = Removed(), list[_Left]()
    quiet_since = time.monotonic()

    def is_quiet() -> bool:
        nonlocal removed, left, quiet_since
        once = Removed(nodes=1)
        while once:
            once, left = _remove_once(connection, labels)
            removed += once
            if once or left:
                quiet_since = time.monotonic()
        return not left and time.monotonic() - quiet_since >= settle_s

    if not poll_until(is_quiet, _DEADLINE_S, _POLL_S):
        names = join_words(f"{one.kind} {one.name}" for one in left)
        why = f": {left[0].why}" if left else ""
        raise ClusterError(
            f"the engine did not remove {names or 'the cluster'} within {format_duration(_DEADLINE_S)}{why}",
            _how_to_remove(connection, left),
        )
    return removed


class _Left(NamedTuple):
    """An object that the engine did not remove."""

    kind: str
    """The docker command's word for it."""
    name: str
    why: str
    """The engine's message."""


def _remove_once(connection: Connection, labels: list[str]) -> tuple[Removed, list[_Left]]:
    containers, left = connection.containers(labels), list[_Left]()

    def remove_each(kind: str, items: list[dict[str, Any]], path: str) -> int:
        """Remove objects of one kind, whose fields complete the path; return how many were removed."""
        why_not = map_parallel(lambda item: _remove_one(connection, path.format_map(item)), items)
        names = (str(item["Name"] if "Name" in item else item["Names"][0].lstrip("/")) for item in items)
        left.extend(_Left(kind, name, why) for name, why in zip(names, why_not, strict=True) if why)
        return why_not.count("")

    nodes = zygotes = 0
    for has in (True, False):  # a zygote first: it then enters no other node
        some = [item for item in containers if (label.ZYGOTE in item["Labels"]) == has]
        zygotes, nodes = nodes, remove_each("container", some, "/containers/{Id}?force=1&v=1")
    networks, volumes = find_rest(connection, labels)
    names = {item["Labels"][label.CLUSTER] for item in (*containers, *networks, *volumes)}
    removed_networks = remove_each("network", networks, "/networks/{Id}")
    removed_volumes = remove_each("volume", volumes, "/volumes/{Name}?force=1")
    gone = {"networks": removed_networks, "volumes": removed_volumes}
    removed = Removed(clusters=tuple(sorted(names)), nodes=nodes or zygotes, **gone)
    return removed, left


def _remove_one(connection: Connection, path: str) -> str | None:
    """Remove an object; return why the engine refused, empty after a removal, None if it was gone."""
    try:
        return None if connection.request_existing("DELETE", path) is None else ""
    except Refused as refused:
        if refused.status in _IN_USE:  # retried in the next round
            return refused.explanation
        raise


def _how_to_remove(connection: Connection, left: Sequence[_Left]) -> str:
    """Return the command that removes what blocks the first of them."""
    if (network := next((one.name for one in left if one.kind == "network"), None)) is not None:
        with suppress(Refused):
            users = connection.ask("GET", f"/networks/{network}")["Containers"] or {}
            if users:
                cut = "; ".join(f"docker network disconnect --force {network} {one['Name']}" for one in users.values())
                return f"`{cut}`, then `lab down` again"
        return f"`docker network rm {network}` once nothing uses it, or after a restart of the engine"
    return f"`docker {left[0].kind} rm --force {left[0].name}`, then `lab down` again" if left else ""
