"""What a Slurm cluster consists of: its requests, its allocation, its machines, and the steps of its agents."""

from __future__ import annotations

import json
import math
import os
import re
import socket
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.protocol import Request
from lab.errors import ClusterError, ClusterUnfit
from lab.features.slurm import check_python
from lab.features.slurm.command import HOME, Host, query_slurm, read_hosts
from lab.node.files import home_folder
from lab.plan.cluster import Shape
from lab.words import format_count

ENGINE = "slurm"
_FIRST_PORT, _PORTS = 28411, 4096
"""Ports of rendezvous stores, below those that kernels assign: one for each job, because jobs may share a machine."""


def job_name(cluster: str) -> str:
    """Return Slurm's name of a cluster's job."""
    return f"lab-{cluster}"


def shared_folder(home: Path, cluster: str) -> Path:
    """Return the folder of a cluster on a file system that all nodes see."""
    default = f"{home_folder()}/.lab/shared"
    return Path(os.environ.get("LAB_SLURM_SHARED", default)) / f"{cluster}-{label.short_digest(str(home))}"


def own_folder(home: Path, cluster: str, node: str) -> str:
    """Return the folder of a node on its machine. It is short: the path of a Unix socket has at most 107 bytes."""
    return f"/tmp/lab-{os.getuid()}-{label.short_digest(str(home))}-{cluster}.{node}"


def port_of(job: str) -> int:
    """Return the port of the rendezvous store of a job."""
    return _FIRST_PORT + int(job) % _PORTS


def make_shared(folder: Path, data: dict[str, str]) -> None:
    """Create the folder that all nodes see, with a link to each folder of data."""
    hint = "set LAB_SLURM_SHARED to your folder on a file system that all machines share"
    with ClusterError.on_os_error(f"cannot create the shared folder {folder}", hint):
        for name in ("shared", "data"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, source in data.items():
            (folder / "data" / name).unlink(missing_ok=True)
            (folder / "data" / name).symlink_to(source)


def hosts_of(job: str) -> list[Host]:
    """Return the machines of a job.

    Raises:
        ClusterError: It has none, because it has ended.
    """
    if not (names := query_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()):
        raise ClusterError(f"job {job} ended before it started", f"`scontrol show job {job}` may show why")
    return read_hosts(query_slurm("scontrol", "--oneliner", "show", "node", names))


def resolve_host(host: Host) -> str:
    """Return the address of a machine on the network of all machines.

    Raises:
        ClusterError: Its name has no address.
    """
    with ClusterError.on_os_error(f"{host.address}, the address of {host.name} in Slurm, cannot be resolved"):
        addresses = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
    return str(min(addresses, key=lambda one: one[0] != socket.AF_INET)[4][0])


QUEUE_S = 3600
"""Default seconds to wait for an allocation; `--immediate` is salloc's own option for it."""
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_OURS = {
    "nodes": "use --nodes",
    "nodelist": "use --hosts",
    "no-shell": "the lab sets it",
    "job-name": "the lab finds its clusters by it",
    "comment": "the lab finds its clusters by it",
    "jobid": "the lab requests a new allocation",
}
"""Options of salloc that users cannot set, and why."""
_START = Path(__file__).with_name("start.sh").read_text()
"""The first process of a node.

After a signal, it waits for the end of its agent. If an agent ends because its standard input ended, no other
process is left to release the allocation.
"""


def requests_for(
    home: Path, cluster: str, shape: Shape, *, owner: str, run: str | None, pythons: Sequence[str], packages: str = ""
) -> list[Request]:
    """Return the allocation and the agents' steps, without job, machine, and address, which Slurm assigns.

    home: The folder of this owner's Slurm clusters.
        cluster: Its name.
        shape: Its shape.
        owner: `user@host` of its owner.
        run: The run that will remove it, if any.
        pythons: Tried on each machine in this order, until one has torch.
        packages: The virtual environment of the workers; empty: none.

    Raises:
        ClusterUnfit: Slurm does not support this shape.
    """
    _refuse_impossible(shape)
    labels = {**label.cluster_labels(cluster, owner, shape.to_json(), run), HOME: str(home)}
    shared = shared_folder(home, cluster)
    requests = [
        Request(what=f"allocation {job_name(cluster)}", body={"argv": salloc_argv(cluster, shape, labels)}),
        Request(what=f"folder {shared}", body={"data": {name: str(source) for name, source in shape.data.items()}}),
    ]
    for node in (f"node{node_rank}" for node_rank in range(shape.nodes)):
        root = own_folder(home, cluster, node)
        paths = {"root": root, "import_root": f"{root}/site", "shared": str(shared / "shared"), "packages": packages}
        limits = {"memory_bytes": shape.memory_bytes, "disk_bytes": shape.disk_bytes}
        config = {"node": node, "container": False, **paths, **limits}
        argv = [*_container(cluster, node, shape, shared), "sh", "-c", _START, "lab"]
        body = {"argv": argv, "config": config, "pythons": list(pythons), "environment": dict(shape.env)}
        requests.append(Request(what=f"step of {node}", body=body))
    return requests


def salloc_argv(cluster: str, shape: Shape, labels: dict[str, str]) -> list[str]:
    """Return the command that requests the allocation; the user's options come last, and so take precedence."""
    return [
        "salloc",
        "--no-shell",
        f"--job-name={job_name(cluster)}",
        f"--comment={json.dumps(labels, separators=(',', ':'), sort_keys=True)}",
        f"--nodes={shape.nodes}",
        "--ntasks-per-node=1",
        f"--immediate={QUEUE_S}",
        *([f"--cpus-per-task={math.ceil(shape.cpus)}"] if shape.cpus else []),
        *([f"--mem={math.ceil(shape.memory_bytes / 2**20)}M"] if shape.memory_bytes else []),
        *([f"--gres=gpu:{shape.gpus}"] if shape.gpus else []),
        *([f"--nodelist={','.join(shape.hosts)}"] if shape.hosts else []),
        *(f"--{name}={value}" if value else f"--{name}" for name, value in shape.allocation.items()),
    ]


def queue_s(shape: Shape) -> float:
    """Return the seconds after which salloc stops waiting for the allocation."""
    immediate = shape.allocation.get("immediate", "")
    return float(immediate) if immediate.isdecimal() else QUEUE_S


def step_argv(job: str, host: str, *options: str) -> list[str]:
    """Return the command that starts one more process on a machine of a job."""
    one = ("--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none")
    return ["srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", *one, *options]


def agent_argv(body: Mapping[str, Any], job: str, host: str, address: str) -> list[str]:
    """Return the command that starts an agent, from its request and what Slurm has assigned."""
    config = body["config"]
    options = ["--unbuffered", "--cpu-bind=none", f"--job-name={config['node']}"]
    words = [config["root"], address, Path(check_python.__file__).read_text(), boot.BECOME, json.dumps(config)]
    return [*step_argv(job, host, *options), *body["argv"], *words, *body["pythons"]]


def container_name(cluster: str, node: str) -> str:
    """Return pyxis' name of a node's container."""
    return f"{job_name(cluster)}-{node}"


def _container(cluster: str, node: str, shape: Shape, shared: Path) -> list[str]:
    """Return the options of pyxis, a plugin of srun."""
    if shape.image is None:
        return []
    mounts: list[tuple[str, ...]] = [(one, one) for one in map(str, (shared, *shape.data.values()))]
    mounts += [(str(one.source), one.target, *["ro"] * one.read_only) for one in shape.volumes]
    if (path := next((path for path in chain(*mounts) if re.search("[,:]", path)), None)) is not None:
        raise ClusterUnfit(f"cannot mount {path} in an image: pyxis allows no comma or colon in a path", "rename it")
    return [
        f"--container-image={shape.image}",
        f"--container-name={container_name(cluster, node)}",
        f"--container-mounts={','.join(map(':'.join, mounts))}",
        "--container-writable",
    ]


def _refuse_impossible(shape: Shape) -> None:
    """Refuse a shape that Slurm does not support.

    Raises:
        ClusterUnfit: It does not.
    """
    for name in shape.allocation:
        if name in _OURS:
            raise ClusterUnfit(f"--allocation cannot set {name}", _OURS[name])
        if not _OPTION.fullmatch(name):
            hint = "write it without dashes: --allocation partition=gpu"
            raise ClusterUnfit(f"{name!r} is not a long option of salloc", hint)
    if len(shape.hosts) > shape.nodes:
        why = f"--hosts names {len(shape.hosts)} hosts, but the cluster has {format_count(shape.nodes, 'node')}"
        raise ClusterUnfit(why, "name fewer, or raise --nodes")
    for volume in shape.volumes:
        if shape.image is None and str(volume.source) != volume.target:
            why = f"the slurm engine cannot mount {volume.source} at {volume.target} without an image"
            raise ClusterUnfit(why, f"use {volume.source} as the target too, or name an image")
    if shape.strict:
        why = "--strict needs the docker engine: Slurm's workers run as your own user"
        raise ClusterUnfit(why, "use --engine docker")
    if shape.image is not None and shape.requirements:
        hint = "use an image that has the packages, or leave the image out"
        raise ClusterUnfit("the slurm engine cannot add packages to an image", hint)
