"""What exists in a swarm, found by the labels of services, and what is left of it on hosts that do not answer now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker import state as docker
from lab.engine.ownership import state_folder
from lab.errors import LabError, NodeLost
from lab.features.swarm.hosts import Hosts
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node

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
    return docker.filters(cluster, OWNER)


def find(hosts: Hosts, engine: str, cluster: str | None) -> list[ClusterInfo]:
    """The owner's clusters that exist, wholly or in part."""
    asked = filters(cluster)
    services = hosts.services(asked)
    if not services:
        return []
    tasks = hosts.newest_tasks(asked)

    def containers(host: str) -> Containers:
        hosts.await_sign(host)
        listed = hosts.engine(host).connection.containers(asked)
        return {container["Labels"].get(TASK, ""): container for container in listed}

    names = {host for task in tasks.values() if (host := host_of(hosts, task))}
    answered = hosts.each(containers, sorted(names))
    return docker.gather_clusters(
        engine,
        (
            (service["Spec"]["Labels"], _node(service["Spec"], tasks.get(service["ID"], {}), hosts, answered))
            for service in services
        ),
    )


def host_of(hosts: Hosts, task: Mapping[str, Any]) -> str:
    """Name of the host that runs a task; empty where it has none yet."""
    host = hosts.by_id.get(task.get("NodeID", ""))
    return host.name if host is not None else ""


def _node(spec: Mapping[str, Any], task: Mapping[str, Any], hosts: Hosts, answered: Mapping[str, Containers]) -> Node:
    """The node that a service of this specification is, by its last task; empty: it has none yet."""
    name, host = spec["Labels"][label.NODE], host_of(hosts, task)
    container = answered.get(host, {}).get(task.get("ID", ""))
    if spec["Labels"].get(POWER) == OFF:
        state = STOPPED
    elif container is not None:
        state = docker.container_state(container)
    elif host and host not in answered:
        state = LOST
    else:  # it has no container yet, or none any more
        state = str(task["Status"]["State"]) if task else "pending"
        state = "starting" if state == RUNNING else state
    attachments = task.get("NetworksAttachments") or () if state in (RUNNING, LOST) else ()
    addresses = (address for attachment in attachments for address in attachment.get("Addresses") or ())
    return Node(
        name=name,
        node_rank=int(name.removeprefix("node")),
        handle=spec["Name"],
        address=next(addresses, "").partition("/")[0],
        state=state,
        host=host,
    )


def on_their_hosts(hosts: Hosts, nodes: Sequence[Node]) -> list[Node]:
    """Nodes as the engines of their hosts know them: with the ids of their containers.

    Raises:
        NodeLost: one has no container there.
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


# -- hosts that did not answer


def remember(hosts: Iterable[str], clusters: Iterable[str]) -> None:
    """Keep in mind that clusters are to be removed from hosts."""
    for host, cluster in product(hosts, clusters):
        path = _left() / host / cluster
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def forget(hosts: Iterable[str], clusters: Iterable[str]) -> None:
    """Keep it in mind no more: they are."""
    for host, cluster in product(hosts, clusters):
        (_left() / host / cluster).unlink(missing_ok=True)
    for folder in _entries(_left()):
        with suppress(OSError):  # there is more to remember of that host
            folder.rmdir()


def sweep(hosts: Hosts) -> None:
    """Remove what was left on hosts that are back, and say so on standard error."""
    left = {folder.name: [path.name for path in _entries(folder)] for folder in _entries(_left())}
    for host in hosts.each(hosts.await_sign, left):
        for cluster in left[host]:
            try:
                removed = docker.remove(hosts.engine(host).connection, filters(cluster), 0.0)
            except LabError as error:
                sys.stderr.write(f"warning: cluster {cluster} is still on host {host}: {error.message}\n")
                continue
            forget([host], [cluster])
            if removed:
                sys.stderr.write(f"removed what was left of cluster {cluster} on host {host}, which is back\n")


def _left() -> Path:
    """A folder a host, in it an entry a cluster."""
    return state_folder() / "swarm-left"


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
