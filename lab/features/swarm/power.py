"""Cutting the power of a swarm's tasks, and having Swarm make them anew.

A service says by a label that its node was stopped on purpose. A task that has ended stays so; a node that is started
is a new task on the same host, with another container and another address.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.direct import Refused
from lab.engine.protocol import Announce
from lab.errors import ClusterError, NodeLost
from lab.features.swarm.create import start_agents
from lab.features.swarm.hosts import Hosts
from lab.features.swarm.state import OFF, POWER, filters, on_its_host
from lab.plan.cluster import ClusterInfo, Node
from lab.words import plural

_NOT_RUNNING = 409


def stop(hosts: Hosts, nodes: Sequence[Node]) -> None:
    """Kill tasks where they run, and mark their services.

    Raises:
        LabError: one could not be stopped.
    """
    services = {service["Spec"]["Name"]: service for service in hosts.manager.services(filters(None))}
    for node in nodes:
        service = services.get(node.handle)
        if service is None:
            raise NodeLost(f"{node.name} is not there any more", "see `lab status`")
        _kill(hosts, node)
        if service["Spec"]["Labels"].get(POWER) != OFF:
            spec = deepcopy(service["Spec"])
            spec["Labels"][POWER] = OFF
            hosts.manager.change_service(service, spec)


def start(hosts: Hosts, cluster: ClusterInfo, nodes: Sequence[Node], announce: Announce) -> None:
    """Have new tasks made for nodes that do not run, and wait until their agents have imported torch.

    Raises:
        LabError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again")
    services = {
        service["Spec"]["Labels"][label.NODE]: service for service in hosts.manager.services(filters(cluster.name))
    }
    image, made = "", dict[str, str]()
    for node in nodes:
        service = services.get(node.name)
        if service is None:
            raise ClusterError(f"{node.name} is not there any more", "see `lab status`")
        image = service["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
        hosts.manager.remove_service(service["ID"])
        made[hosts.manager.make_service(_again(service["Spec"], hosts.known[node.host].id))] = node.name
    start_agents(hosts, cluster.name, made, image, announce)


def _again(spec: dict[str, Any], host: str) -> dict[str, Any]:
    """The specification of a node that is to come back to its host."""
    spec = deepcopy(spec)
    spec["Labels"].pop(POWER, None)
    spec["TaskTemplate"].setdefault("Placement", {})["Constraints"] = [f"node.id=={host}"]
    return spec


def _kill(hosts: Hosts, node: Node) -> None:
    try:
        hosts.engine(node.host).kill(on_its_host(hosts, node))
    except Refused as refused:
        if refused.status != _NOT_RUNNING:
            raise
