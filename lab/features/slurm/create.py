"""Making a Slurm cluster: what Slurm is asked for, the allocation, and the process that holds the agents."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lab
from lab import __version__
from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.agent_holder import DESCRIPTION, start_holder
from lab.engine.payload import initial_input
from lab.engine.protocol import Announce, Request
from lab.errors import ClusterError, ClusterUnfit
from lab.features.slurm import look
from lab.features.slurm.command import HOME, Host, allocate, ask, environment, read_hosts
from lab.plan.cluster import Shape
from lab.words import format_count, join_words

ENGINE = "slurm"
LOG = "holder.log"
"""What the process wrote that holds the agents."""
_HOLD = "import sys; sys.path.insert(0, {above!r}); from lab.features.slurm.holder import main; main()"
_FIRST_PORT, _PORTS = 28411, 4096
"""Of rendezvous stores: below those that kernels give away, one for each job, because two may share a machine."""


def job_name(cluster: str) -> str:
    """What Slurm calls the job."""
    return f"lab-{cluster}"


def shared_folder(home: Path, cluster: str) -> Path:
    """The folder of a cluster on a file system that all nodes see."""
    default = Path.home() / ".lab" / "shared"
    return Path(os.environ.get("LAB_SLURM_SHARED", default)) / f"{cluster}-{label.short_digest(str(home))}"


def own_folder(home: Path, cluster: str, node: str) -> str:
    """The folder of a node on its machine: short, because the path of a Unix socket has at most 107 bytes."""
    return f"/tmp/lab-{os.getuid()}-{label.short_digest(str(home))}-{cluster}.{node}"


def start_agents(
    home: Path, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
) -> Callable[[], bool]:
    """Make the folders, ask for the allocation, and start what holds the agents; returns whether that has ended.

    Raises:
        LabError: Slurm gave no allocation; what was made is still there.
    """
    asked, shared, *steps = (request.body for request in requests)
    folder = label.new_folder(home, cluster, "LAB_SLURM_HOME")
    label.register_cluster(ENGINE, cluster, folder)
    description: dict[str, Any] = {"shape": shape.to_json(), "run": run, "version": __version__}

    def describe(**more: Any) -> None:
        """Add to the description of the cluster, which is replaced at once."""
        description.update(more)
        new = folder / f"{DESCRIPTION}.new"
        new.write_text(json.dumps(description))
        new.rename(folder / DESCRIPTION)

    describe()
    _make_shared(shared_folder(home, cluster), shared["data"])
    announce(f"asking Slurm for {format_count(shape.nodes, 'machine')}")
    job = allocate(asked["argv"], queue_s(shape), announce)
    describe(job=job)
    hosts = _hosts_of(job)[: shape.nodes]
    names, addresses = [host.name for host in hosts], [_resolve(host) for host in hosts]
    describe(hosts=names, addresses=addresses, port=_FIRST_PORT + int(job) % _PORTS)
    (folder / "agent.bin").write_bytes(initial_input())
    where = ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
    announce(f"starting {format_count(shape.nodes, 'node')} in job {job}, importing torch on {where}")
    argvs = {
        step["config"]["node"]: agent_argv(step, job, host, address)
        for step, host, address in zip(steps, names, addresses, strict=True)
    }
    program = _HOLD.format(above=str(Path(lab.__file__).parent.parent))
    argv = [sys.executable, "-c", program, json.dumps({"folder": str(folder), "job": job, "argvs": argvs})]
    return start_holder(argv, {**environment(), **shape.env}, folder / LOG)


def _make_shared(folder: Path, data: dict[str, str]) -> None:
    """The folder that all nodes see, with a link to each folder of data."""
    try:
        for name in ("shared", "data"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, source in data.items():
            (folder / "data" / name).unlink(missing_ok=True)
            (folder / "data" / name).symlink_to(source)
    except OSError as error:
        raise ClusterError(
            f"cannot make the folder that all nodes share, {folder}: {error.strerror}",
            "set LAB_SLURM_SHARED to a folder of yours on a file system that all machines see",
        ) from error


def _hosts_of(job: str) -> list[Host]:
    """The machines of a job.

    Raises:
        ClusterError: it has none: it has ended already.
    """
    names = ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    if not names:
        raise ClusterError(f"job {job} has ended before it began", f"`scontrol show job {job}` may say why")
    return read_hosts(ask("scontrol", "--oneliner", "show", "node", names))


def _resolve(host: Host) -> str:
    """The address of a machine on the network of all of them.

    Raises:
        ClusterError: its name has none.
    """
    try:
        found = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterError(
            f"{host.address}, as Slurm calls {host.name}, has no address here: {error.strerror or error}"
        ) from error
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


QUEUE_S = 3600
"""How long an allocation is waited for where nobody says; `--immediate` is salloc's own word for it."""
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_OURS = {
    "nodes": "use --nodes",
    "nodelist": "use --hosts",
    "no-shell": "the lab says that itself",
    "job-name": "the lab finds its clusters by it",
    "comment": "the lab finds its clusters by it",
    "jobid": "the lab asks for an allocation of its own",
}
"""Options of salloc that are not for whoever makes a cluster, and why."""
NO_TORCH = 71
"""Exit code of a node on which no Python has torch."""
_START = """: agent of the lab
trap : HUP INT TERM
root=$1 address=$2 look=$3 become=$4 config=$5
shift 5
rm -rf "$root"
mkdir -m 700 "$root" && echo $$ >"$root/first" || exit 1
for python do
  command -v "$python" >"$root/python" || continue
  interface=$("$python" -c "$look" "$address") || continue
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$interface}"
  [ "$GLOO_SOCKET_IFNAME" ] || unset GLOO_SOCKET_IFNAME
  "$python" -c "$become" "$config"
  code=$?
  cd /
  rm -rf "$root" 2>/dev/null || { chmod -R u+rwX "$root"; rm -rf "$root"; }
  [ $code != 0 ] || scancel --quiet "$SLURM_JOB_ID"
  exit $code
done
rm -rf "$root"
echo "none of $* on $(hostname) can import torch" >&2
exit 71
"""
"""The first process of a node. Ended by a signal, it waits until its agent has left. An agent that leaves because its
standard input ended has nobody any more who would give the allocation back."""


def requests_for(
    home: Path, cluster: str, shape: Shape, *, owner: str, run: str | None, pythons: Sequence[str], packages: str = ""
) -> list[Request]:
    """The allocation, and the steps of its agents: their options but for job, machine and address, which Slurm gives.

    `pythons` are tried on each machine in this order, until one has torch. `packages`: the virtual environment that
    workers use, if any.

    Raises:
        ClusterUnfit: Slurm cannot be asked for that.
    """
    _refuse_impossible(shape)
    labels = {**label.cluster_labels(cluster, owner, shape.to_json(), run), HOME: str(home)}
    shared = shared_folder(home, cluster)
    requests = [
        Request(what=f"allocation {job_name(cluster)}", body={"argv": salloc(cluster, shape, labels)}),
        Request(what=f"folder {shared}", body={"data": {name: str(source) for name, source in shape.data.items()}}),
    ]
    for node in (f"node{node_rank}" for node_rank in range(shape.nodes)):
        root = own_folder(home, cluster, node)
        config = {
            "node": node,
            "root": root,
            "container": False,
            "import_root": f"{root}/site",
            "memory_bytes": shape.memory_bytes,
            "disk_bytes": shape.disk_bytes,
            "shared": str(shared / "shared"),
            "packages": packages,
        }
        argv = [*_container(cluster, node, shape, shared), "sh", "-c", _START, "lab"]
        body = {"argv": argv, "config": config, "pythons": list(pythons), "environment": dict(shape.env)}
        requests.append(Request(what=f"step of {node}", body=body))
    return requests


def salloc(cluster: str, shape: Shape, labels: dict[str, str]) -> list[str]:
    """The command that asks for the allocation; what a person says comes last, and so wins."""
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
    """Seconds after which salloc gives up waiting for the allocation."""
    said = shape.allocation.get("immediate", "")
    return float(said) if said.isdecimal() else QUEUE_S


def step_argv(job: str, host: str, *options: str) -> list[str]:
    """A command that starts one process on a machine of a job, beside whatever runs there."""
    one = ("--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none")
    return ["srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", *one, *options]


def agent_argv(body: Mapping[str, Any], job: str, host: str, address: str) -> list[str]:
    """The command that starts an agent, from what was asked for it and what Slurm has given."""
    config = body["config"]
    options = ["--unbuffered", "--cpu-bind=none", f"--job-name={config['node']}"]
    words = [config["root"], address, Path(look.__file__).read_text(), boot.BECOME, json.dumps(config)]
    return [*step_argv(job, host, *options), *body["argv"], *words, *body["pythons"]]


def container_name(cluster: str, node: str) -> str:
    """What pyxis calls the container of a node."""
    return f"{job_name(cluster)}-{node}"


def _container(cluster: str, node: str, shape: Shape, shared: Path) -> list[str]:
    """Options of pyxis, which is a plugin of srun's."""
    if shape.image is None:
        return []
    seen = [f"{shared}:{shared}", *(f"{one.source}:{one.target}" for one in shape.volumes)]
    seen += [f"{source}:{source}" for source in shape.data.values()]
    return [
        f"--container-image={shape.image}",
        f"--container-name={container_name(cluster, node)}",
        f"--container-mounts={','.join(seen)}",
        "--container-writable",
    ]


def _refuse_impossible(shape: Shape) -> None:
    """Refuse what Slurm cannot be asked for.

    Raises:
        ClusterUnfit: such a shape.
    """
    for name in shape.allocation:
        if name in _OURS:
            raise ClusterUnfit(f"an allocation cannot be told {name} with --allocation", _OURS[name])
        if not _OPTION.fullmatch(name):
            raise ClusterUnfit(
                f"{name!r} is no long option of salloc", "write it without dashes: --allocation partition=gpu"
            )
    if len(shape.hosts) > shape.nodes:
        raise ClusterUnfit(
            f"each node has a host of its own in Slurm, and {join_words(shape.hosts)} are more than {shape.nodes}",
            "name fewer, or raise --nodes",
        )
    for volume in shape.volumes:
        if shape.image is None and str(volume.source) != volume.target:
            raise ClusterUnfit(
                f"the slurm engine cannot show {volume.source} at {volume.target} without a container",
                f"use {volume.source} as the target too, or name an image",
            )
    if shape.strict:
        raise ClusterUnfit("the slurm engine cannot be strict: its workers are you", "use --engine docker")
    if shape.image is not None and shape.requirements:
        raise ClusterUnfit(
            "the slurm engine adds no packages to an image", "use an image that has them, or leave the image out"
        )
