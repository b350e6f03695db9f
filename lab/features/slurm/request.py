"""What Slurm is asked for when a cluster is made: an allocation, and a job step for each agent."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine import ownership as label
from lab.engine.docker import boot
from lab.engine.protocol import Request
from lab.errors import ClusterUnfit
from lab.features.slurm import look
from lab.features.slurm.layout import job_name, own_folder, shared_folder
from lab.features.slurm.said import HOME, labels_json
from lab.plan.cluster import Shape
from lab.words import listing

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
    refuse_impossible(shape)
    labels = {
        label.CLUSTER: cluster,
        label.OWNER: owner,
        label.VERSION: __version__,
        label.SHAPE: shape.to_json(),
        HOME: str(home),
        **({label.RUN: run} if run else {}),
    }
    shared = shared_folder(home, cluster)
    return [
        Request(what=f"allocation {job_name(cluster)}", body={"argv": salloc(cluster, shape, labels)}),
        Request(what=f"folder {shared}", body={"data": {name: str(source) for name, source in shape.data.items()}}),
        *(
            Request(
                what=f"step of {node}",
                body={
                    "argv": [*_container(cluster, node, shape, shared), "sh", "-c", _START, "lab"],
                    "config": {**_config(home, cluster, node, shape, shared), "packages": packages},
                    "pythons": list(pythons),
                    "environment": dict(shape.env),
                },
            )
            for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
        ),
    ]


def salloc(cluster: str, shape: Shape, labels: dict[str, str]) -> list[str]:
    """The command that asks for the allocation; what a person says comes last, and so wins."""
    return [
        "salloc",
        "--no-shell",
        f"--job-name={job_name(cluster)}",
        f"--comment={labels_json(labels)}",
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


def step(job: str, host: str, *options: str) -> list[str]:
    """A command that starts one process on a machine of a job, beside whatever runs there."""
    return [
        "srun",
        f"--jobid={job}",
        "--overlap",
        f"--nodelist={host}",
        "--nodes=1",
        "--ntasks=1",
        "--mem=0",
        "--mpi=none",
        *options,
    ]


def agent_argv(body: Mapping[str, Any], job: str, host: str, address: str) -> list[str]:
    """The command that starts an agent, from what was asked for it and what Slurm has given."""
    options = ["--unbuffered", "--cpu-bind=none", f"--job-name={body['config']['node']}"]
    config, pythons = body["config"], body["pythons"]
    said = [config["root"], address, _program(look.__file__), boot.BECOME, json.dumps(config)]
    return [*step(job, host, *options), *body["argv"], *said, *pythons]


def _program(path: str) -> str:
    return Path(path).read_text()


def _config(home: Path, cluster: str, node: str, shape: Shape, shared: Path) -> dict[str, Any]:
    root = own_folder(home, cluster, node)
    return {
        "node": node,
        "root": root,
        "container": False,
        "import_root": f"{root}/site",
        "memory_bytes": shape.memory_bytes,
        "disk_bytes": shape.disk_bytes,
        "shared": str(shared / "shared"),
    }


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


def refuse_impossible(shape: Shape) -> None:
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
            f"each node has a host of its own in Slurm, and {listing(shape.hosts)} are more than {shape.nodes}",
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
