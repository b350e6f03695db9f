"""What exists on the Docker engine, found and removed by its labels, and what became of nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, Refused
from lab.engine.protocol import AGENT_STOPPED, NodeState, Removed, Trouble
from lab.errors import ClusterError
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Limits
from lab.waiting import wait_until
from lab.words import format_duration, listing

ENGINE = "docker"
_LOOK_TIMEOUT_S = 2.0
"""A run is not held up for longer by an engine that does not answer."""
STOPPED_SUFFIX = ".stopped"
"""How the name of a container ends that was stopped on purpose."""
_NEVER = "0001-01-01"
"""How the engine writes a time that has not come."""
_OOM, _KILL = "oom", "kill"
_OOM_BEFORE_END_S = 2.0
"""A container ends at most so long after the kernel has killed its agent: the rest of its memory is returned first."""
_EVENT_DELAY_S = 1.0
"""The engine may tell of it after the end, where it is busy."""


def find(connection: Connection, cluster: str | None) -> list[ClusterInfo]:
    """The owner's clusters that exist, wholly or in part, by their labels."""
    found: dict[str, list[dict[str, Any]]] = {}
    for container in connection.containers([*filters(cluster), label.NODE]):
        found.setdefault(container["Labels"][label.CLUSTER], []).append(container)
    return [_cluster_info(name, containers) for name, containers in sorted(found.items())]


def find_rest(connection: Connection, labels: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The engine's own networks and the volumes with these labels."""
    volumes: Any = connection.listed("volumes", {"label": labels})
    own = {"label": labels, "scope": ["local"]}  # those of a swarm are its managers' to remove
    return connection.listed("networks", own), volumes["Volumes"] or []


def nodeless(connection: Connection) -> list[str]:
    """Names of the owner's clusters of which a network, a volume or a zygote is there, but no node."""
    alive = {info.name for info in find(connection, None)}
    networks, volumes = find_rest(connection, filters(None))
    zygotes = connection.containers([*filters(None), label.ZYGOTE])
    return sorted({item["Labels"][label.CLUSTER] for item in (*networks, *volumes, *zygotes)} - alive)


def node_state(connection: Connection, node: Node) -> NodeState:
    """What became of a node."""
    try:
        state = connection.inspect(node.handle)["State"]
    except Refused as refused:
        if refused.status == 404:
            return NodeState(running=False, gone=True)
        raise
    if state["Status"] in ("removing", "dead"):  # it is killed first, whoever removes it
        return NodeState(running=False, gone=True)
    return NodeState(
        running=bool(state["Running"]),
        exit_code=state["ExitCode"],
        out_of_memory=bool(state["OOMKilled"]) and not state["Running"] and _ended_by_oom(connection, node, state),
        restarted=bool(state["Running"]) and not state.get("FinishedAt", _NEVER).startswith(_NEVER),
    )


def _ended_by_oom(connection: Connection, node: Node, state: Mapping[str, Any]) -> bool:
    """Whether lack of memory ended a container, of which only a worker may have been killed for that, long ago.

    `OOMKilled` stays set once the kernel has killed any process of a container. So the events around the end decide:
    the kernel killed something, and nobody had the engine kill the container.
    """
    from datetime import datetime  # mostly no node is lost

    try:
        ended = datetime.fromisoformat(state["FinishedAt"]).timestamp()
        span = ended - _OOM_BEFORE_END_S, ended + _EVENT_DELAY_S
        happened = {event["Action"] for event in connection.events(node.handle, (_OOM, _KILL), span)}
    except (Refused, ValueError, KeyError):  # an engine that cannot say it
        return True
    return _OOM in happened and _KILL not in happened


def trouble(connection: Connection, node: Node) -> Trouble | None:
    """What keeps a container that is there from working."""
    try:
        found = connection.inspect(node.handle, _LOOK_TIMEOUT_S)
    except Refused:
        return None  # it is gone: its channel tells that
    if found["State"]["Paused"]:
        return Trouble("was paused", silent=True)
    if found["State"]["Running"] and _is_stopped(found["State"]["Pid"], node.handle):
        return AGENT_STOPPED
    if found["State"]["Running"] and not found["NetworkSettings"]["Networks"]:
        return Trouble("was disconnected from its network", silent=False)
    return None


def _is_stopped(first: int, container: str) -> bool:
    """Whether a signal has stopped a container's first process, or the agent, which is the only child of that.

    The engine does not tell. It is seen where the engine is on this machine: there is a process of that number then, of
    which the kernel says that it is the container's.
    """
    from lab.node import processes  # takes a while to import, and a short run does not need it

    try:
        with open(f"/proc/{first}/cgroup") as groups, open(f"/proc/{first}/task/{first}/children") as children:
            if container not in groups.read():
                return False
            return any(map(processes.is_stopped, (first, *map(int, children.read().split()))))
    except OSError:
        return False


def memory_bytes(connection: Connection, node: Node) -> int | None:
    """Memory that a node uses, without what the kernel can take back."""
    answer = connection.ask("GET", f"/containers/{node.handle}/stats?stream=0&one-shot=1")
    stats = (answer or {}).get("memory_stats", {})  # an engine whose container has just ended answers nothing
    detail = stats.get("stats", {})
    reclaimable = detail.get("total_inactive_file", detail.get("inactive_file", 0))
    return max(0, stats["usage"] - reclaimable) if "usage" in stats else None


def filters(cluster: str | None) -> list[str]:
    """The labels of the owner's clusters, or of the one of this name, in Docker's `name=value` form."""
    mine = [f"{label.OWNER}={label.owner()}"]
    return [*mine, f"{label.CLUSTER}={cluster}"] if cluster else mine


def _cluster_info(name: str, containers: list[dict[str, Any]]) -> ClusterInfo:
    labels = containers[0]["Labels"]
    nodes = []
    for container in containers:
        node = container["Labels"][label.NODE]
        networks = container.get("NetworkSettings", {}).get("Networks", {})
        address = next((network["IPAddress"] for network in networks.values()), "")
        nodes.append(
            Node(
                name=node,
                node_rank=int(node.removeprefix("node")),
                handle=container["Id"],
                address=address,
                state=container_state(container),
            )
        )
    return ClusterInfo(
        name=name,
        engine=ENGINE,
        shape=Shape.from_json(labels[label.SHAPE]),
        nodes=tuple(sorted(nodes, key=lambda node: node.node_rank)),
        owner=labels[label.OWNER],
        run=labels.get(label.RUN),
        version=labels.get(label.VERSION, ""),
        limits=Limits.from_json(labels.get(label.LIMITS, "{}")),
    )


def container_state(container: Mapping[str, Any]) -> str:
    """The state of a node whose container is listed like this."""
    if container["State"] == RUNNING:
        return RUNNING if container.get("NetworkSettings", {}).get("Networks", {}) else "disconnected"
    marked = any(name.endswith(STOPPED_SUFFIX) for name in container.get("Names") or ())
    return STOPPED if marked else str(container["State"])


_DEADLINE_S = 60.0
_LOOK_S = 0.1
_GONE = 404
_IN_USE = (403, 409)


def remove(connection: Connection, filters: list[str], settle_s: float) -> Removed:
    """Remove everything that carries these labels, until nothing does.

    Args:
        connection: to the engine.
        filters: labels in Docker's `name=value` form.
        settle_s: seconds during which nothing new may appear; a client that was killed may have left a request
            that the engine is still working on.

    Raises:
        ClusterError: something could not be removed; it names that, says why, and what removes it by hand.
    """
    removed, left = Removed(), list[_Left]()
    quiet_since = time.monotonic()

    def is_quiet() -> bool:
        nonlocal removed, left, quiet_since
        once = Removed(nodes=1)
        while once:
            once, left = _remove_once(connection, filters)
            removed += once
            if once or left:
                quiet_since = time.monotonic()
        return not left and time.monotonic() - quiet_since >= settle_s

    if not wait_until(is_quiet, _DEADLINE_S, _LOOK_S):
        names = listing(f"{one.kind} {one.name}" for one in left)
        why = f": {left[0].why}" if left else ""
        raise ClusterError(
            f"the engine did not remove {names or 'everything'} within {format_duration(_DEADLINE_S)}{why}",
            _how_to_remove(connection, left),
        )
    return removed


class _Left(NamedTuple):
    """What the engine did not remove."""

    kind: str
    """As the docker command line calls it."""
    name: str
    why: str
    """In the engine's words."""


def _remove_once(connection: Connection, filters: list[str]) -> tuple[Removed, list[_Left]]:
    containers, left = connection.containers(filters), list[_Left]()

    def remove_each(kind: str, items: list[dict[str, Any]], path: str) -> int:
        """Remove things of one kind, each at the path that it makes complete; returns how many are gone."""
        why_not = connection.together(lambda item: _remove_one(connection, path.format_map(item)), items)
        names = (str(item["Name"] if "Name" in item else item["Names"][0].lstrip("/")) for item in items)
        left.extend(_Left(kind, name, why) for name, why in zip(names, why_not, strict=True) if why)
        return why_not.count("")

    nodes = zygotes = 0
    for has in (True, False):  # a zygote first: it enters no node any more
        some = [item for item in containers if (label.ZYGOTE in item["Labels"]) == has]
        zygotes, nodes = nodes, remove_each("container", some, "/containers/{Id}?force=1&v=1")
    networks, volumes = find_rest(connection, filters)
    names = {item["Labels"][label.CLUSTER] for item in (*containers, *networks, *volumes)}
    removed = Removed(
        clusters=tuple(sorted(names)),
        nodes=nodes or zygotes,
        networks=remove_each("network", networks, "/networks/{Id}"),
        volumes=remove_each("volume", volumes, "/volumes/{Name}?force=1"),
    )
    return removed, left


def _remove_one(connection: Connection, path: str) -> str | None:
    """Remove something; returns why the engine did not, empty where it did, None where it was gone."""
    try:
        connection.request("DELETE", path)
    except Refused as refused:
        if refused.status == _GONE:
            return None
        if refused.status in _IN_USE:  # the next round tries again
            return refused.explanation
        raise
    return ""


def _how_to_remove(connection: Connection, left: Sequence[_Left]) -> str:
    """The command that removes what keeps the first of them."""
    network = next((one.name for one in left if one.kind == "network"), None)
    if network is not None:
        with suppress(Refused):
            users = connection.ask("GET", f"/networks/{network}")["Containers"] or {}
            if users:
                cut = "; ".join(f"docker network disconnect --force {network} {one['Name']}" for one in users.values())
                return f"`{cut}`, then `lab down` again"
        return f"`docker network rm {network}` once nothing is on it, or once the engine was started anew"
    return f"`docker {left[0].kind} rm --force {left[0].name}`, then `lab down` again" if left else ""
