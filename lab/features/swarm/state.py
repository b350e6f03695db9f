"""What exists in a swarm, found by the labels of services, and removed, also from hosts that do not answer now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.state import container_state, find_rest
from lab.engine.docker.state import remove as remove_from_host
from lab.engine.ownership import forget_cluster, state_folder
from lab.engine.protocol import Removed
from lab.errors import ClusterError, LabError, NodeLost
from lab.features.swarm.hosts import Hosts, Settings, newest
from lab.features.swarm.images import remove_shared
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Limits
from lab.waiting import wait_until
from lab.words import format_duration, listing

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


_NETWORK_GONE_S = 60.0
_LOOK_S = 0.05


def remove(hosts: Hosts, settings: Settings, cluster: str | None, settle_s: float) -> Removed:
    """Remove everything of the owner's cluster of this name, or of all of them.

    Raises:
        LabError: something could not be removed on a host that answers; the message names it.
    """
    asked = filters(cluster)
    services = hosts.manager.services(asked)
    networks = hosts.manager.networks(asked)
    names = {item["Spec"]["Labels"][label.CLUSTER] for item in services}
    names |= {item["Labels"][label.CLUSTER] for item in networks}
    _remember(hosts.known, names)
    for service in services:
        hosts.manager.remove(f"services/{service['ID']}")
    on_hosts = hosts.each(lambda name: _remove_from(hosts, name, asked, settle_s), hosts.known)
    silent = tuple(name for name in hosts.known if name not in on_hosts)
    containers = sum((removed for removed in on_hosts.values()), Removed())
    names |= {*containers.clusters}
    for network in networks:
        _remove_network(hosts, network, silent)
    _remove_shared_folders(hosts, settings, services, sorted(names))
    _forget(on_hosts, names)
    forget_cluster(ENGINE, cluster)
    return Removed(
        clusters=tuple(sorted(names)),
        nodes=len(services) or containers.nodes,
        networks=len(networks),
        volumes=containers.volumes,
        later=silent if names else (),
    )


def _remove_from(hosts: Hosts, name: str, labels: list[str], settle_s: float) -> Removed:
    hosts.await_sign(name)
    return remove_from_host(hosts.engine(name).connection, labels, settle_s)


def _remove_network(hosts: Hosts, network: Mapping[str, Any], silent: tuple[str, ...]) -> None:
    """Remove a network as soon as Swarm has taken note that no task is on it any more.

    Raises:
        ClusterError: it was not in time.
    """

    def is_gone() -> bool:
        return hosts.manager.remove(f"networks/{network['Id']}") or not any(
            one["Id"] == network["Id"] for one in hosts.manager.networks([])
        )

    if not wait_until(is_gone, _NETWORK_GONE_S, _LOOK_S):
        raise ClusterError(
            f"Swarm did not remove network {network['Name']} within {format_duration(_NETWORK_GONE_S)}",
            f"host {listing(silent)} does not answer" if silent else "`lab down` tries again",
        )


def _remove_shared_folders(
    hosts: Hosts, settings: Settings, services: list[dict[str, Any]], clusters: list[str]
) -> None:
    if settings.shared is None or not services:
        return
    image = services[0]["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
    labels = {OWNER: label.owner(), label.CLUSTER: clusters[0]}
    with suppress(LabError):  # files that nobody needs any more
        remove_shared(hosts.manager.connection, image, settings.shared, clusters, labels)


# -- hosts that did not answer


def _remember(hosts: Iterable[str], clusters: Iterable[str]) -> None:
    """Keep in mind that clusters are to be removed from hosts."""
    for host, cluster in product(hosts, clusters):
        path = _left() / host / cluster
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _forget(hosts: Iterable[str], clusters: Iterable[str]) -> None:
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
                removed = remove_from_host(hosts.engine(host).connection, filters(cluster), 0.0)
            except LabError as error:
                sys.stderr.write(f"warning: cluster {cluster} is still on host {host}: {error.message}\n")
                continue
            _forget([host], [cluster])
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
