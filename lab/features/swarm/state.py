"""What exists in a swarm: clusters by the labels of their services, and what became of their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.state import container_state, find_rest
from lab.errors import NodeLost
from lab.features.swarm.hosts import Hosts, newest
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Limits

ENGINE = "swarm"
OWNER = f"{label.NAMESPACE}.swarm.owner"
"""In the place of the usual label: a Docker engine does not take its part of a cluster for one of its own."""
POWER = f"{label.NAMESPACE}.power"
"""Label of a service: `off` while its node was stopped on purpose."""
OFF = "off"
SERVICE = "com.docker.swarm.service.name"
"""Swarm's own label of a task's container."""
TASK = "com.docker.swarm.task.id"
LOST = "lost"
"""The state of a node whose host does not answer."""
Containers = Mapping[str, Mapping[str, Any]]
"""Containers of a host, as its engine lists them, by the task that they are of."""


def filters(cluster: str | None) -> list[str]:
    """The labels of the owner's clusters, or of the one of this name, in Docker's `name=value` form."""
    mine = [f"{OWNER}={label.owner()}"]
    return [*mine, f"{label.CLUSTER}={cluster}"] if cluster else mine


def find(hosts: Hosts, cluster: str | None) -> list[ClusterInfo]:
    """The owner's clusters that exist, wholly or in part."""
    asked = filters(cluster)
    services = hosts.manager.services(asked)
    if not services:
        return []
    tasks = newest(hosts.manager.tasks(asked))
    names = {host for task in tasks.values() if (host := host_of(hosts, task))}
    answered = hosts.each(lambda name: _containers(hosts, name, asked), sorted(names))
    found: dict[str, list[Node]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    for service in services:
        said = service["Spec"]["Labels"]
        node = _node(service, tasks.get(service["ID"]), hosts, answered)
        found.setdefault(said[label.CLUSTER], []).append(node)
        labels[said[label.CLUSTER]] = said
    return [_cluster(name, labels[name], nodes) for name, nodes in sorted(found.items())]


def host_of(hosts: Hosts, task: Mapping[str, Any]) -> str:
    """Name of the host that runs a task; empty where it has none yet."""
    host = hosts.by_id.get(task.get("NodeID", ""))
    return host.name if host is not None else ""


def _containers(hosts: Hosts, host: str, labels: list[str]) -> Containers:
    hosts.await_sign(host)
    listed = hosts.engine(host).connection.containers(labels)
    return {container["Labels"].get(TASK, ""): container for container in listed}


def _node(
    service: Mapping[str, Any], task: Mapping[str, Any] | None, hosts: Hosts, answered: Mapping[str, Containers]
) -> Node:
    spec = service["Spec"]
    name = spec["Labels"][label.NODE]
    host = host_of(hosts, task) if task is not None else ""
    container = answered.get(host, {}).get(task["ID"]) if task is not None else None
    if spec["Labels"].get(POWER) == OFF:
        state = STOPPED
    elif container is not None:
        state = container_state(container)
    elif host and host not in answered:
        state = LOST
    else:  # it has no container yet, or none any more
        state = str(task["Status"]["State"]) if task is not None else "pending"
        state = "starting" if state == RUNNING else state
    return Node(
        name=name,
        node_rank=int(name.removeprefix("node")),
        handle=spec["Name"],
        address=_address(task) if state in (RUNNING, LOST) else "",
        state=state,
        host=host,
    )


def _address(task: Mapping[str, Any] | None) -> str:
    """The address on the cluster's network, which Swarm gave the task."""
    attachments = task.get("NetworksAttachments") or () if task is not None else ()
    addresses = (address for attachment in attachments for address in attachment.get("Addresses") or ())
    return next(addresses, "").partition("/")[0]


def _cluster(name: str, labels: Mapping[str, str], nodes: list[Node]) -> ClusterInfo:
    return ClusterInfo(
        name=name,
        engine=ENGINE,
        shape=Shape.from_json(labels[label.SHAPE]),
        nodes=tuple(sorted(nodes, key=lambda node: node.node_rank)),
        owner=labels[OWNER],
        run=labels.get(label.RUN),
        version=labels.get(label.VERSION, ""),
        limits=Limits.from_json(labels.get(label.LIMITS, "{}")),
    )


def nodeless(hosts: Hosts) -> list[str]:
    """Names of the owner's clusters of which a network, a container or a volume is there, but no service."""
    asked = filters(None)
    alive = {service["Spec"]["Labels"][label.CLUSTER] for service in hosts.manager.services(asked)}

    def on_host(name: str) -> set[str]:
        hosts.await_sign(name)
        connection = hosts.engine(name).connection
        things = [*connection.containers(asked), *find_rest(connection, asked)[1]]
        return {thing["Labels"][label.CLUSTER] for thing in things}

    found = {network["Labels"][label.CLUSTER] for network in hosts.manager.networks(asked)}
    return sorted(found.union(*hosts.each(on_host, hosts.known).values()) - alive)


def on_its_host(hosts: Hosts, node: Node) -> Node:
    """A node as the engine of its host knows it: with its container's id.

    Raises:
        NodeLost: it has no container there.
    """
    return on_their_hosts(hosts, [node])[0]


def on_their_hosts(hosts: Hosts, nodes: Sequence[Node]) -> list[Node]:
    """The same for several nodes.

    Raises:
        NodeLost: one has no container.
    """
    services: dict[str, str] = {}
    for host in dict.fromkeys(node.host for node in nodes):
        listed = hosts.engine(host).connection.containers([*filters(None), SERVICE])
        for container in sorted(listed, key=lambda container: container["Created"]):  # the last one is the node
            services[container["Labels"][SERVICE]] = container["Id"]
    for node in nodes:
        if node.handle not in services:
            raise NodeLost(f"{node.name} has no container on host {node.host}", "see `lab status`")
    return [replace(node, handle=services[node.handle]) for node in nodes]
