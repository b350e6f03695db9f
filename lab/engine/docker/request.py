"""What Docker's API is asked for when a cluster is made: bodies of requests, from shape and names alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab import __version__
from lab.engine import ownership as label
from lab.engine.docker import boot
from lab.engine.docker.volumes import DATA, SHARED, refuse_targets
from lab.engine.docker.zygote import NAME, uses_zygote, zygote_body
from lab.engine.image.image import DEFAULT_IMAGE
from lab.engine.packages import ENVIRONMENT
from lab.engine.protocol import Request
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape
from lab.plan.limits import Limits, Machine, limits_for

_AGENT_ROOT = "/var/lab"
_SHM_BYTES = 1 << 30
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID")
_IN_MEMORY = {
    **dict.fromkeys(("/tmp", "/var/tmp", "/run/lock"), "mode=0777"),
    **dict.fromkeys((_AGENT_ROOT, boot.IMPORT_ROOT), "mode=0755"),
}
"""Where a node with a read-only root can write, in its memory."""
_NO_ADDRESS_OF_THE_MACHINE = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""Else what listens on the machine itself could be reached from an internal network."""
_START = (
    ": agent of the lab; for python in python3 python; do "
    "$python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"torch\"))' 2>/dev/null && "
    f'exec $python -c "{boot.BECOME}" "$0"; done; '
    f"echo 'no python on PATH can import torch' >&2; exit {boot.NO_TORCH}"
)
"""Shown by `ps` and `docker ps`: it says what it is, and is told over standard input what it can be told there."""
_START_FIRST = (
    ": node of the lab; for python in python3 python; do command -v $python >/dev/null && "
    f'exec $python -ISc "import os, signal; signal.signal(signal.SIGALRM, lambda *_: os._exit(1)); {boot.BECOME}" '
    '"$0"; done; '
    f"echo 'there is no python on PATH' >&2; exit {boot.NO_TORCH}"
)
"""The same where the agent comes from a zygote: this process only waits for it. The kernel spares a first process that
has not said what an alarm is to do."""


def requests_for(
    cluster: str,
    shape: Shape,
    *,
    owner: str,
    run: str | None,
    machine: Machine | None = None,
    image: str | None = None,
    zygote: bool = True,
) -> list[Request]:
    """Network, volume, a container a node, and a zygote where there is one; limits are parts of the machine.

    `image` is what containers are made of, where that is not the image of the shape, but one with packages besides.
    Without `zygote` there is none: where nodes are on several machines.

    Raises:
        ClusterUnfit: a strict cluster cannot be that, or a volume would hide what a node runs on.
    """
    limits = shape.limits
    if machine is not None:
        limits = limits_for(shape.nodes, limits, machine, strict=shape.strict)
    refuse_targets(shape)
    mounted = [*(volume.source for volume in shape.volumes), *shape.data.values()]
    if shape.strict and mounted:
        raise ClusterUnfit(
            f"a strict cluster mounts no folder of this machine, and {mounted[0]} is to be one",
            "leave the volumes, the data or --strict out",
        )
    labels = {
        label.CLUSTER: cluster,
        label.OWNER: owner,
        label.VERSION: __version__,
        label.SHAPE: shape.to_json(),
        label.LIMITS: limits.to_json(),
        **({label.RUN: run} if run else {}),
    }
    network, volume = f"lab-{cluster}", f"lab-{cluster}-shared"
    forked = zygote and uses_zygote(shape)
    nodes = [_container(rank, network, shape, limits, labels, image) for rank in range(shape.nodes)]
    if forked:
        nodes = [_forked(node) for node in nodes]
    return [
        Request(
            what=f"network {network}",
            body={
                "Name": network,
                "Driver": "bridge",
                "CheckDuplicate": True,
                "Internal": shape.strict,
                "Options": _NO_ADDRESS_OF_THE_MACHINE if shape.strict else {},
                "Labels": labels,
            },
        ),
        Request(
            what=f"volume {volume}",
            body={"Name": volume, "Labels": labels, "DriverOpts": _shared_in_memory(limits) if shape.strict else {}},
        ),
        *(Request(what=f"container {network}-{node['Hostname']}", body=node) for node in nodes),
        *(Request(what=f"container {network}-{NAME}", body=body) for body in [_zygote(shape, labels)] if forked),
    ]


def _forked(node: dict[str, Any]) -> dict[str, Any]:
    """A node whose agent a zygote forks: its first process is what the engine's own would be to an agent."""
    start = ["/bin/sh", "-c", _START_FIRST]
    return {**node, "Entrypoint": start, "HostConfig": {**node["HostConfig"], "Init": False}}


def _zygote(shape: Shape, labels: Mapping[str, str]) -> dict[str, Any]:
    return zygote_body(
        DEFAULT_IMAGE,
        plain_start(json.dumps({boot.ZYGOTE: True, "import_root": boot.IMPORT_ROOT})),
        _environment(shape),
        labels,
        _CAPABILITIES,
    )


def plain_start(config: str) -> list[str]:
    """What starts a node that imports torch itself."""
    return ["/bin/sh", "-c", _START, config]


def _environment(shape: Shape) -> list[str]:
    return [f"{name}={value}" for name, value in shape.env.items()]


def _container(
    rank: int, network: str, shape: Shape, limits: Limits, labels: Mapping[str, str], image: str | None
) -> dict[str, Any]:
    node = f"node{rank}"
    config = {
        "node": node,
        "root": _AGENT_ROOT,
        "container": True,
        "import_root": boot.IMPORT_ROOT,
        "kept": [SHARED, *(f"{DATA}/{name}" for name in shape.data), *(volume.target for volume in shape.volumes)],
        "disk_bytes": None if shape.strict else limits.disk_bytes,
        "tell_of_full": shape.strict,
        "foreign": (shape.image or DEFAULT_IMAGE) != DEFAULT_IMAGE,
        "shared": SHARED,
        "packages": ENVIRONMENT if shape.requirements else "",
    }
    return {
        "Image": image or shape.image or DEFAULT_IMAGE,
        "Entrypoint": ["/bin/sh", "-c", _START],
        "Cmd": [json.dumps(config)],
        "Hostname": node,
        "User": "0:0",
        "WorkingDir": _AGENT_ROOT,  # Python imports from there, and no volume can lie in it
        "OpenStdin": True,
        "StdinOnce": False,  # else the engine closes standard input when the first client goes
        "Env": _environment(shape),
        "Labels": {**labels, label.NODE: node},
        "HostConfig": {
            "Binds": [
                f"{network}-shared:{SHARED}",
                *(f"{v.source}:{v.target}{':ro' if v.read_only else ''}" for v in shape.volumes),
            ],
            "Mounts": [
                {"Type": "bind", "Source": str(folder), "Target": f"{DATA}/{name}", "ReadOnly": True}
                for name, folder in shape.data.items()
            ],
            "CapDrop": ["ALL"],
            "CapAdd": list(_CAPABILITIES),
            "Init": True,
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "NetworkMode": network,
            "SecurityOpt": ["no-new-privileges"],
            "ShmSize": min(_SHM_BYTES, (limits.memory_bytes or 2 * _SHM_BYTES) // 2),
            **_limits(shape, limits, rank),
            **({"ReadonlyRootfs": True, "Tmpfs": _in_memory(limits)} if shape.strict else {}),
        },
        "NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": [node]}}},
    }


def _in_memory(limits: Limits) -> dict[str, str]:
    return {folder: f"rw,exec,nosuid,nodev,{_size(limits)},{mode}" for folder, mode in _IN_MEMORY.items()}


def _shared_in_memory(limits: Limits) -> dict[str, str]:
    return {"type": "tmpfs", "device": "tmpfs", "o": f"{_size(limits)},mode=0777"}


def _size(limits: Limits) -> str:
    return f"size={limits.disk_bytes}" if limits.disk_bytes else "size=50%"


def gpus_of(node_rank: int, gpus: int) -> list[str]:
    """The numbers of a node's GPUs: each node has its own, because nccl refuses two ranks on one."""
    return [str(node_rank * gpus + number) for number in range(gpus)]


def _limits(shape: Shape, limits: Limits, node_rank: int) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if limits.memory_bytes:
        config |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
    if limits.processes:
        config["PidsLimit"] = limits.processes
    if shape.cpus:
        config["NanoCpus"] = int(shape.cpus * 1e9)
    if shape.gpus:
        config["DeviceRequests"] = [{"DeviceIDs": gpus_of(node_rank, shape.gpus), "Capabilities": [["gpu"]]}]
    return config
