"""Build the requests to Docker's API that create a cluster, from its shape and names alone."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from pathlib import PurePosixPath
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE
from lab.engine.local.machine import read_capacity
from lab.engine.packages import ENVIRONMENT
from lab.engine.protocol import Request
from lab.errors import ClusterUnfit
from lab.feature import find_hook
from lab.plan.cluster import Shape
from lab.plan.limits import Capacity, Limits, Machine, NodeCost, limits_for

_AGENT_ROOT = "/var/lab"
_STORE = "/var/lab-contents"
"""The volume of the contents that the agents of a cluster share."""
_SHM_BYTES = 1 << 30
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID")
_IN_MEMORY = {
    **dict.fromkeys(("/tmp", "/var/tmp", "/run/lock"), "mode=0777"),
    **dict.fromkeys((_AGENT_ROOT, boot.IMPORT_ROOT), "mode=0755"),
}
"""Folders that a node with a read-only root can write, in memory."""
_NO_ADDRESS_OF_THE_MACHINE = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""Without this option, services of the machine could be reached from an internal network."""
_START = (
    ": agent of the lab; for python in python3 python; do "
    "$python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"torch\"))' 2>/dev/null && "
    f'exec $python -c "{boot.BECOME}" "$0"; done; '
    f"echo 'no python on PATH can import torch' >&2; exit {boot.NO_TORCH}"
)
"""Shown by `ps` and `docker ps`: it names its purpose, and receives the rest over standard input."""


def requests_for(
    cluster: str, shape: Shape, *, owner: str, run: str | None, machine: Machine | None = None, image: str | None = None
) -> list[Request]:
    """Return the requests for a network, a volume, a container for each node, and a zygote if one is used.

    Args:
        cluster: its name.
        shape: its shape.
        owner: `user@host` of its owner.
        run: the run that will remove it, if any.
        machine: limits are parts of it; None: no default limits.
        image: an image with packages that replaces the image of the shape.

    Raises:
        ClusterUnfit: a strict cluster cannot have this shape, or a volume would hide what a node runs on.
    """
    limits = shape.limits
    if machine is not None:
        limits = limits_for(shape.nodes, limits, machine, strict=shape.strict)
    refuse_targets(shape)
    mounted = [*(volume.source for volume in shape.volumes), *shape.data.values()]
    if shape.strict and mounted:
        hint = "leave out the volumes, the data, or --strict"
        raise ClusterUnfit(f"a strict cluster cannot mount folders of this machine, such as {mounted[0]}", hint)
    labels = {**label.cluster_labels(cluster, owner, shape.to_json(), run), label.LIMITS: limits.to_json()}
    network, volume = f"lab-{cluster}", f"lab-{cluster}-shared"
    forked = zygote_of(shape)
    nodes = [_container(rank, network, shape, limits, labels, image) for rank in range(shape.nodes)]
    if forked:
        nodes = [*map(forked.with_zygote, nodes), forked.zygote_body(nodes[0], labels)]
    network_body = {"Name": network, "Driver": "bridge", "CheckDuplicate": True, "Internal": shape.strict}
    network_body |= {"Options": _NO_ADDRESS_OF_THE_MACHINE if shape.strict else {}, "Labels": labels}
    driver = {"type": "tmpfs", "device": "tmpfs", "o": f"{_size(limits)},mode=0777"} if shape.strict else {}
    return [
        Request(what=f"network {network}", body=network_body),
        Request(what=f"volume {volume}", body={"Name": volume, "Labels": labels, "DriverOpts": driver}),
        Request(what=f"volume {network}-store", body={"Name": f"{network}-store", "Labels": labels, "DriverOpts": {}}),
        *(Request(what=f"container {network}-{node['Hostname']}", body=node) for node in nodes),
    ]


def plain_start(config: str) -> list[str]:
    """Return the command of a node that imports torch itself."""
    return ["/bin/sh", "-c", _START, config]


def _container(
    rank: int, network: str, shape: Shape, limits: Limits, labels: Mapping[str, str], image: str | None
) -> dict[str, Any]:
    node = f"node{rank}"
    config = {
        "node": node,
        "root": _AGENT_ROOT,
        "container": True,
        "import_root": boot.IMPORT_ROOT,
        "store": _STORE,
        "kept": [SHARED, *(f"{DATA}/{name}" for name in shape.data), *(volume.target for volume in shape.volumes)],
        "disk_bytes": None if shape.strict else limits.disk_bytes,
        "strict": shape.strict,
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
        "WorkingDir": _AGENT_ROOT,  # Python imports from there, and no volume can be mounted in it
        "OpenStdin": True,
        "StdinOnce": False,  # else the engine closes standard input when the first client goes
        "Env": [f"{name}={value}" for name, value in shape.env.items()],
        "Labels": {**labels, label.NODE: node},
        "HostConfig": {
            "Binds": [
                f"{network}-shared:{SHARED}",
                f"{network}-store:{_STORE}",
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
            **{name: amount for name, amount in _limits(shape, limits, rank).items() if amount},
        },
        "NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": [node]}}},
    }


def _limits(shape: Shape, limits: Limits, rank: int) -> dict[str, Any]:
    """Return the limits of a node, and a strict node's writable folders.

    Each node has its own GPUs, as nccl requires.
    """
    gpus = [str(rank * shape.gpus + number) for number in range(shape.gpus)]
    in_memory = {folder: f"rw,exec,nosuid,nodev,{_size(limits)},{mode}" for folder, mode in _IN_MEMORY.items()}
    return {
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "PidsLimit": limits.processes,
        "NanoCpus": int((shape.cpus or 0) * 1e9),
        "DeviceRequests": [{"DeviceIDs": gpus, "Capabilities": [["gpu"]]}] if gpus else None,
        "ReadonlyRootfs": shape.strict,
        "Tmpfs": in_memory if shape.strict else None,
    }


def _size(limits: Limits) -> str:
    return f"size={limits.disk_bytes}" if limits.disk_bytes else "size=50%"


_ALONE = NodeCost(node_bytes=160_000_000, shared_bytes=0, node_threads=16)
"""Estimates from measurements: memory of an idle node, the engine's process for it with 13 threads, and its network."""
_PORTS = 1023
"""Ports of a Linux bridge; each node uses one."""
_NOT_FOR_NODES = 3
"""The first and the last address of a network, and the machine's own."""


def cost_of(shape: Shape) -> NodeCost:
    """Return the cost of a node of such a cluster."""
    forked = zygote_of(shape)
    return forked.COST if forked else _ALONE


def zygote_of(shape: Shape) -> Any:
    """Return a feature's module whose zygote forks the agents of such a cluster; None: each node imports torch."""
    zygote = None if shape.strict or shape.image or shape.requirements or shape.gpus else find_hook("zygote")
    return zygote if zygote is not None and zygote.uses_zygote(shape.nodes) else None


def is_here(facts: Mapping[str, Any]) -> bool:
    """Return whether an engine is on this machine, according to its own description."""
    return facts.get("Name") == os.uname().nodename


def capacity_of(facts: Mapping[str, Any]) -> Capacity:
    """Return the capacity that an engine has left; of another machine, only its addresses are known."""
    sizes = [int(pool["Size"]) for pool in facts.get("DefaultAddressPools") or ()]
    addresses = min([_PORTS, *(2 ** (32 - size) - _NOT_FOR_NODES for size in sizes if size <= 32)])
    return (read_capacity(cgroups=None) if is_here(facts) else Capacity())._replace(addresses=max(0, addresses))


SHARED = "/shared"
DATA = "/data"
_FOR_FILES = {
    *("data", "datasets", "home", "input", "inputs", "media", "mnt", "models", "output", "outputs", "projects"),
    *("results", "scratch", "srv", "work", "workspace"),
}
"""Top folders of an image in which volumes are allowed: they hold files, and rarely programs."""
_PATHS = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables of an image that name folders of its programs."""
_BELOW = "mount it in /data, /mnt, or another folder that the image does not have"


def refuse_targets(shape: Shape) -> None:
    """Refuse volumes over folders that nodes need, and volumes in other volumes, which may contain links.

    Raises:
        ClusterUnfit: a volume is refused; the message names it.
    """
    if not shape.volumes:
        return
    from lab.spec.keys import own_folder, plain_target  # few clusters have any

    for volume in shape.volumes:
        if ":" in f"{volume.source}{volume.target}":
            hint = "mount a folder without a colon in its path"
            raise ClusterUnfit(f"cannot mount volume {volume}: Docker does not allow a colon in a path", hint)
        problem = own_folder(plain_target(posixpath.normpath(volume.target)))
        if problem and not (str(volume.source) == volume.target and volume.target.startswith("/tmp/")):
            raise ClusterUnfit(f"cannot mount volume {volume}: {problem}", _BELOW)
    data = (f"{DATA}/{name}" for name in shape.data)
    targets = [PurePosixPath(target) for target in (*(one.target for one in shape.volumes), *data)]
    for inner, outer in permutations(targets, 2):
        if inner != outer and inner.is_relative_to(outer):
            hint = "mount them next to each other"
            raise ClusterUnfit(f"cannot mount volume {inner}: it is inside {outer}, which is a volume too", hint)


def refuse_volumes_over_programs(connection: Connection, image: str, shape: Shape) -> None:
    """Refuse volumes over an image's own folders, except those for files, and over its programs.

    Raises:
        ClusterUnfit: a volume is refused; the message names it and the folder.
    """
    facts = connection.ask("GET", f"/images/{image}/json")
    programs = list(_program_folders((facts.get("Config") or {}).get("Env") or ()))
    body = {"Image": image, "Cmd": ["true"], "NetworkDisabled": True, "Entrypoint": []}
    with connection.temporary_container(body) as container:
        for volume in shape.volumes:
            target = PurePosixPath(volume.target)
            top = target.parts[1]
            hidden = next((one for one in programs if one.is_relative_to(target) or target.is_relative_to(one)), None)
            if hidden is None and top not in _FOR_FILES:
                there = connection.request_existing("HEAD", f"/containers/{container}/archive?path=/{top}")
                hidden = PurePosixPath(f"/{top}") if there is not None else None
            if hidden is not None:
                raise ClusterUnfit(f"cannot mount volume {volume}: the image {image} has {hidden}", _BELOW)


def _program_folders(environment: Iterable[str]) -> Iterator[PurePosixPath]:
    """Yield the program folders in the environment of an image; for `/venv/bin` in PATH, all of `/venv`."""
    variables = dict(one.partition("=")[::2] for one in environment)
    for entry in (entry for name in _PATHS for entry in re.split("[ :]", variables.get(name, ""))):
        path = PurePosixPath(entry)
        if path.is_absolute() and len(path.parts) > 1:
            yield path.parent if path.name in ("bin", "sbin") and len(path.parts) > 2 else path
