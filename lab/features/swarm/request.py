"""What a swarm's manager is asked for when a cluster is made: a network, and a service a node; from plain data alone.

A node is to be what it is on one host. So its service is said in the words of a container, as the docker engine asks
for it, and translated; what a service cannot have is put in another way (the size of /dev/shm, files in memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.engine import ownership as label
from lab.engine.protocol import Request
from lab.features.swarm.state import OWNER
from lab.plan.cluster import Shape

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
    placed: dict[str, Mapping[str, Any]] = {
        "Placement": {"Constraints": [f"node.id!={host}" for host in sorted(not_on)]},
        "Resources": {"Reservations": {name: amount for name, amount in reserved.items() if amount}},
    }
    return [
        Request(what=f"network {network['Name']}", body=_network(network)),
        *(
            Request(
                what=f"service {network['Name']}-{body['Hostname']}",
                body=_service(body, network["Name"], _mounts(body, volume, shared), placed),
            )
            for body in containers
        ),
    ]


def _network(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Name": asked["Name"],
        "CheckDuplicate": True,
        "Driver": "overlay",
        "Scope": "swarm",
        "Attachable": True,
        "Internal": asked["Internal"],
        "Labels": _labels(asked["Labels"]),
    }


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {OWNER if name == label.OWNER else name: text for name, text in labels.items()}


def _service(
    body: Mapping[str, Any], network: str, mounts: Iterable[dict[str, Any]], placed: Mapping[str, Mapping[str, Any]]
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
            "Resources": {
                "Limits": {name: amount for name, amount in limits.items() if amount},
                **placed["Resources"],
            },
            "RestartPolicy": _NO_RESTART,
            "Placement": placed["Placement"],
            "Networks": [{"Target": network, "Aliases": [body["Hostname"]]}],
            "LogDriver": {"Name": host["LogConfig"]["Type"]},
        },
        "Mode": {"Replicated": {"Replicas": 1}},
        "EndpointSpec": {"Mode": "dnsrr"},
    }


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
    for folder, options in host.get(
        "Tmpfs", {}
    ).items():  # a tmpfs of a service takes no `exec`, a volume in memory does
        driver = {"Name": "local", "Options": {"type": "tmpfs", "device": "tmpfs", "o": options}}
        yield {"Type": "volume", "Target": folder, "VolumeOptions": {"NoCopy": True, "DriverConfig": driver}}
