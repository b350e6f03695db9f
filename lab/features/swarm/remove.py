"""Removing clusters from a swarm, also where a host does not answer: what is left there is removed when it is back."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.state import remove as remove_from_host
from lab.engine.ownership import forget_cluster, state_folder
from lab.engine.protocol import Removed
from lab.errors import ClusterError, LabError
from lab.features.swarm.hosts import Hosts, Settings
from lab.features.swarm.images import remove_shared
from lab.features.swarm.state import ENGINE, OWNER, filters
from lab.waiting import wait_until
from lab.words import format_duration, listing

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
        hosts.manager.remove_service(service["ID"])
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
        return hosts.manager.remove_network(network["Id"]) or not any(
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
