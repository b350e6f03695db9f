"""Make a cluster of a swarm's tasks: what its manager is asked for, and agents in containers of tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Refused
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Request
from lab.engine.ready import HELLO, closing_channels, wait_ready
from lab.errors import ClusterError, ClusterUnfit, EngineUnavailable, NodeLost
from lab.features.swarm.hosts import OFF, OWNER, POWER, Hosts, TaskChannel, filters, host_of, on_their_hosts
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.waiting import wait_until
from lab.words import format_duration, listing, plural

_NO_RESTART = {"Condition": "none"}
"""A lost node is lost."""
_SHM = "/dev/shm"
_UCX = "UCX_NET_DEVICES=eth0"
"""Else MPI may take the other interface of a task, over which it leaves its host but does not reach other hosts."""


def translated(
    requests: Sequence[Request], shape: Shape, *, not_on: Iterable[str] = (), shared: str | None = None
) -> list[Request]:
    """The requests to a manager for a cluster that the docker engine would ask for in this way.

    Args:
        requests: those of the docker engine: a network, a volume, a container a node.
        shape: of the cluster; what it asks for is held free for it.
        not_on: ids of hosts that get no node.
        shared: the folder on every host that the nodes share; None: a volume on each host.
    """
    network, volume, *containers = (request.body for request in requests)
    reserved = {"NanoCPUs": int((shape.cpus or 0) * 1e9), "MemoryBytes": shape.memory_bytes or 0}
    placement = {"Constraints": [f"node.id!={host}" for host in sorted(not_on)]}
    translated_network = {
        "Name": network["Name"],
        "CheckDuplicate": True,
        "Driver": "overlay",
        "Scope": "swarm",
        "Attachable": True,
        "Internal": network["Internal"],
        "Labels": _labels(network["Labels"]),
    }
    services = (
        _service(body, network["Name"], _mounts(body, volume, shared), placement, reserved) for body in containers
    )
    return [
        Request(what=f"network {network['Name']}", body=translated_network),
        *(Request(what=f"service {service['Name']}", body=service) for service in services),
    ]


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {OWNER if name == label.OWNER else name: text for name, text in labels.items()}


def _service(
    body: Mapping[str, Any],
    network: str,
    mounts: Iterable[dict[str, Any]],
    placement: Mapping[str, Any],
    reserved: Mapping[str, int],
) -> dict[str, Any]:
    labels, host = _labels(body["Labels"]), body["HostConfig"]
    limits = {"MemoryBytes": host.get("Memory"), "Pids": host.get("PidsLimit"), "NanoCPUs": host.get("NanoCpus")}
    return {
        "Name": f"{network}-{body['Hostname']}",
        "Labels": labels,
        "TaskTemplate": {
            "ContainerSpec": {
                "Image": body["Image"],
                "Command": body["Entrypoint"],
                "Args": body["Cmd"],
                "Hostname": body["Hostname"],
                "User": body["User"],
                "Dir": body["WorkingDir"],
                "OpenStdin": body["OpenStdin"],
                "Env": [_UCX, *body["Env"]],
                "Labels": labels,
                "Init": host["Init"],
                "CapabilityDrop": host["CapDrop"],
                "CapabilityAdd": [f"CAP_{name}" for name in host["CapAdd"]],
                "Privileges": {"NoNewPrivileges": True},  # engines before 25 do not know it; agents do it for workers
                "ReadOnly": host.get("ReadonlyRootfs", False),
                "StopGracePeriod": 0,
                "Mounts": [*mounts],
            },
            "Resources": {"Limits": _given(limits), "Reservations": _given(reserved)},
            "RestartPolicy": _NO_RESTART,
            "Placement": placement,
            "Networks": [{"Target": network, "Aliases": [body["Hostname"]]}],
            "LogDriver": {"Name": host["LogConfig"]["Type"]},
        },
        "Mode": {"Replicated": {"Replicas": 1}},
        "EndpointSpec": {"Mode": "dnsrr"},
    }


def _given(amounts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _mounts(body: Mapping[str, Any], volume: Mapping[str, Any], shared: str | None) -> Iterable[dict[str, Any]]:
    host = body["HostConfig"]
    for bound in host["Binds"]:
        source, target, *mode = bound.split(":")
        if source != volume["Name"]:
            yield {"Type": "bind", "Source": source, "Target": target, "ReadOnly": "ro" in mode}
        elif shared is not None and not volume["DriverOpts"]:
            yield {"Type": "bind", "Source": shared, "Target": target}
        else:
            driver = {"Name": "local", "Options": dict(volume["DriverOpts"])}
            options = {"Labels": _labels(volume["Labels"]), "DriverConfig": driver}
            yield {"Type": "volume", "Source": source, "Target": target, "VolumeOptions": options}
    yield from host["Mounts"]
    yield {"Type": "tmpfs", "Target": _SHM, "TmpfsOptions": {"SizeBytes": host["ShmSize"], "Mode": 0o1777}}
    for folder, options in host.get("Tmpfs", {}).items():  # a tmpfs of a service takes no `exec`, such a volume does
        driver = {"Name": "local", "Options": {"type": "tmpfs", "device": "tmpfs", "o": options}}
        yield {"Type": "volume", "Target": folder, "VolumeOptions": {"NoCopy": True, "DriverConfig": driver}}


_READY_S = 180.0
_STARTED_S = 90.0
_PLACED_S = 5.0
"""A task that Swarm says it has no place for is told of by then: Swarm itself would wait for ever."""
_LOOK_S = 0.05
_DOCTOR = "`lab doctor --engine swarm` may know more"
_ENDED = ("complete", "failed", "rejected", "shutdown", "orphaned", "remove")


def create(hosts: Hosts, cluster: str, requests: Sequence[Request], image: str, announce: Announce) -> None:
    """Make network and services, and wait until every agent has imported torch.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network, *services = (request.body for request in requests)
    hosts.manager.ask("POST", "/networks/create", network)
    announce(f"starting {plural(len(services), 'node')} of image {image}")
    made = {hosts.make_service(service): service["Labels"][label.NODE] for service in services}
    start_agents(hosts, cluster, made, image, announce)


def start_agents(hosts: Hosts, cluster: str, made: Mapping[str, str], image: str, announce: Announce) -> None:
    """Send an agent to each of these nodes, as soon as it has a container, and wait until it has imported torch.

    Args:
        hosts: of the swarm.
        cluster: whose nodes they are.
        made: their names by the ids of their services.
        image: what they are made of.
        announce: called with what is being waited for.

    Raises:
        LabError: one did not start.
    """
    waiting, placed, began = dict(made), set[str](), time.monotonic()

    def are_started(channels: list[TaskChannel]) -> bool:
        tasks = hosts.newest_tasks(filters(cluster))
        for service, name in list(waiting.items()):
            task = tasks.get(service)
            if task is None:
                continue
            state, host = task["Status"]["State"], host_of(hosts, task)
            if host and name not in placed:
                placed.add(name)
                announce(f"{len(placed)}/{len(made)} nodes have a place: {name} on {host}")
            if state in _ENDED:
                said = task["Status"].get("Err") or task["Status"].get("Message") or state
                where = f" on host {host}" if host else ""
                raise ClusterError(f"{name} could not be started{where}: {said}", _DOCTOR)
            if state == "running":
                channels.append(_send_agent(hosts, name, host, task["Status"]["ContainerStatus"]["ContainerID"]))
                del waiting[service]
        if time.monotonic() - began > _PLACED_S:
            homeless = {name: tasks.get(service) for service, name in waiting.items() if name not in placed}
            said = next((task["Status"]["Err"] for task in homeless.values() if task and task["Status"].get("Err")), "")
            if said:
                raise ClusterUnfit(
                    f"Swarm has no host for {listing(homeless)}: {said}",
                    "ask for less with --cpus or --memory, or for fewer nodes; "
                    "`lab doctor --engine swarm` shows the hosts",
                )
        return not waiting

    with closing_channels(list[TaskChannel]()) as channels:
        if not wait_until(lambda: are_started(channels), _STARTED_S, _LOOK_S):
            raise ClusterError(
                f"{listing(sorted(waiting.values()))} did not start within {format_duration(_STARTED_S)}",
                "`docker service ps --no-trunc` shows what Swarm says of its tasks",
            )
        announce("importing torch on every node")
        lost = wait_ready(channels, _READY_S, announce)
    if lost is not None:
        raise hosts.engine(lost.node.host).explain_lost(lost, image)


def _send_agent(hosts: Hosts, name: str, host: str, container: str) -> TaskChannel:
    node = Node(name=name, node_rank=int(name.removeprefix("node")), handle=container, address="", host=host)
    channel = TaskChannel(node, hosts.engine(host).connection.attach(container), container)
    with suppress(OSError):  # it has ended already: whoever waits for it finds out why
        channel.send(sent_first() + HELLO)
    return channel


def usable_hosts(hosts: Hosts, asked: Sequence[str]) -> list[str]:
    """The hosts that nodes can be placed on; of those that were asked for, where any were.

    Raises:
        ClusterUnfit: the swarm does not have one of them.
        EngineUnavailable: there is none.
    """
    unknown = [name for name in asked if name not in hosts.known]
    if unknown:
        raise ClusterUnfit(f"the swarm has no host {unknown[0]}", f"it has {listing(sorted(hosts.known))}")
    there = [host for host in hosts.known.values() if host.ready and host.takes_tasks]
    names = [host.name for host in there if not asked or host.name in asked]
    if not names:
        raise EngineUnavailable(
            f"no host of the swarm takes tasks{f' of {listing(asked)}' if asked else ''}",
            "`docker node ls` shows why: a host may be down or drained",
        )
    return names


_NOT_RUNNING = 409


def stop(hosts: Hosts, nodes: Sequence[Node]) -> None:
    """Kill tasks where they run, and mark their services.

    Raises:
        LabError: one could not be stopped.
    """
    services = {service["Spec"]["Name"]: service for service in hosts.services(filters(None))}
    for node in nodes:
        service = services.get(node.handle)
        if service is None:
            raise NodeLost(f"{node.name} is not there any more", "see `lab status`")
        try:
            hosts.engine(node.host).kill(on_their_hosts(hosts, [node])[0])
        except Refused as refused:
            if refused.status != _NOT_RUNNING:
                raise
        if service["Spec"]["Labels"].get(POWER) != OFF:
            spec = deepcopy(service["Spec"])
            spec["Labels"][POWER] = OFF
            version = service["Version"]["Index"]
            hosts.manager.ask("POST", f"/services/{service['ID']}/update?version={version}", spec)


def start(hosts: Hosts, cluster: ClusterInfo, nodes: Sequence[Node], announce: Announce) -> None:
    """Have new tasks made for nodes that do not run, and wait until their agents have imported torch.

    Raises:
        LabError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again")
    services = {service["Spec"]["Labels"][label.NODE]: service for service in hosts.services(filters(cluster.name))}
    image, made = "", dict[str, str]()
    for node in nodes:
        service = services.get(node.name)
        if service is None:
            raise ClusterError(f"{node.name} is not there any more", "see `lab status`")
        image = service["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
        hosts.remove(f"services/{service['ID']}")
        spec = deepcopy(service["Spec"])
        spec["Labels"].pop(POWER, None)
        spec["TaskTemplate"].setdefault("Placement", {})["Constraints"] = [f"node.id=={hosts.known[node.host].id}"]
        made[hosts.make_service(spec)] = node.name
    start_agents(hosts, cluster.name, made, image, announce)
