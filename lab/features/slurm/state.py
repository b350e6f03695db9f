"""What exists on the Slurm engine: clusters by their folders and by the labels of jobs, and how both end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.engine import ownership
from lab.engine import ownership as label
from lab.engine.held import KILLED, exit_code, holder_died, listens, paused_file, stopped_file
from lab.engine.ownership import forget_cluster
from lab.engine.protocol import NodeState, Removed
from lab.errors import EngineUnavailable
from lab.features.slurm.command import (
    HOME,
    JOBS,
    Fate,
    Job,
    ask,
    give_back,
    is_well,
    read_accounted,
    read_fate,
    read_hosts,
    read_jobs,
)
from lab.node.files import remove_tree
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.waiting import wait_until

_FATE_S = 3.0
"""What became of a job may be known so much later than that its agents left."""
_POLL_S = 0.05
_LEFT = (0, 143)
"""Exit codes of an agent that was told to leave."""


def read_cluster(folder: Path) -> ClusterInfo | None:
    """The cluster in a folder; None where there is none, or it has no machines yet."""
    data = read_description(folder)
    if data is None or "port" not in data:
        return None
    try:
        shape = Shape.from_json(data["shape"])
    except (ValueError, KeyError, TypeError):
        return None
    nodes = []
    for node_rank, (host, address) in enumerate(zip(data["hosts"], data["addresses"], strict=True)):
        name = f"node{node_rank}"
        node = Node(
            name=name, node_rank=node_rank, handle=socket_path(folder, name), address=str(address), host=str(host)
        )
        nodes.append(replace(node, state=_state(node)))
    shared = shared_folder(folder.parent, folder.name)
    return replace(
        _cluster(folder.name, shape, nodes, data.get("run"), data.get("version", "")),
        master_addr=nodes[0].address,
        master_port=int(data["port"]),
        shared=str(shared / "shared"),
        data=str(shared / "data"),
    )


def _cluster(name: str, shape: Shape, nodes: Sequence[Node], run: str | None, version: str) -> ClusterInfo:
    return ClusterInfo(
        name=name,
        engine=ENGINE,
        shape=shape,
        nodes=tuple(nodes),
        owner=label.owner(),
        run=run,
        version=version,
        limits=shape.limits,
        gpus="engine",
    )


def _state(node: Node) -> str:
    if paused_file(node.handle).exists():
        return "paused"
    if listens(node.handle):
        return RUNNING
    return STOPPED if stopped_file(node.handle).exists() else "dead"


def jobs(home: Path, cluster: str | None) -> list[Job]:
    """The owner's jobs that are clusters of this home, or the one of that name, and have not been ended."""
    argv = ["squeue", "--noheader", f"--user={os.getuid()}", f"--format={JOBS}"]
    found = read_jobs(ask(*argv, *([f"--name={job_name(cluster)}"] if cluster else [])))
    mine = {label.OWNER: label.owner(), HOME: str(home)}
    return [
        job
        for job in found
        if not job.ending and mine.items() <= job.labels.items() and (cluster is None or job.cluster == cluster)
    ]


def find(home: Path, cluster: str | None) -> list[ClusterInfo]:
    """The owner's clusters that exist: by their folders, or where a folder is gone, by the labels of their jobs."""
    folders = [home / cluster] if cluster else sorted(home.glob("*"))
    found = {info.name: info for folder in folders if (info := read_cluster(folder)) is not None}
    if cluster is None or cluster not in found:
        for job in jobs(home, cluster):
            if job.cluster not in found and job.hosts:
                found[job.cluster] = _without_folder(home, job)
    return [info for _, info in sorted(found.items())]


def _without_folder(home: Path, job: Job) -> ClusterInfo:
    """A cluster of which nobody holds the agents any more."""
    labels, nodes = job.labels, list[Node]()
    for rank, host in enumerate(ask("scontrol", "show", "hostnames", job.hosts).split()):
        name = f"node{rank}"
        handle = socket_path(home / job.cluster, name)
        nodes.append(Node(name=name, node_rank=rank, handle=handle, address="", state="dead", host=host))
    shape = Shape.from_json(labels[label.SHAPE])
    return _cluster(job.cluster, shape, nodes, labels.get(label.RUN), labels.get(label.VERSION, ""))


def nodeless(home: Path) -> list[str]:
    """Names of the clusters of which something is there, but no node."""
    half = {folder.name for folder in home.glob("*") if is_cluster(folder) and read_cluster(folder) is None}
    waiting = {job.cluster for job in jobs(home, None) if not job.hosts}
    return sorted((half | waiting) - {info.name for info in find(home, None)})


def job_of(node: Node) -> str:
    """The number of the job that a node is in; empty where its cluster was removed."""
    data = read_description(Path(node.handle).parent)
    return str(data.get("job", "")) if data is not None else ""


def fate_of(job: str) -> Fate:
    """What became of a job, as Slurm says now."""
    fate = read_fate(ask("scontrol", "--oneliner", "show", "job", job))
    if fate.state:
        return fate
    try:
        return read_accounted(
            ask("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State")
        )
    except EngineUnavailable:  # it keeps no accounts
        return fate


def node_state(node: Node) -> NodeState:
    """What became of a node.

    Raises:
        EngineUnavailable: Slurm does not answer, or the process that holds all agents of its cluster was killed.
    """
    handle = Path(node.handle)
    if paused_file(node.handle).exists() or listens(node.handle):
        return NodeState(running=True)
    if not handle.exists():
        return NodeState(running=False, gone=True)
    code = exit_code(node)
    if code is None and holder_died(handle.parent / LIFE):
        raise EngineUnavailable(
            f"the process that holds the nodes of cluster {handle.parent.name} was killed, which gives their machines "
            "back",
            "`lab down` removes the rest",
        )
    said = "" if stopped_file(node.handle).exists() else _said(node, left=code in _LEFT)
    return NodeState(running=False, exit_code=code if code is not None else KILLED, said=said)


def _said(node: Node, *, left: bool) -> str:
    """What Slurm says became of a node; empty where its job goes on.

    Args:
        node: which does not run.
        left: whether its agent was told to leave: whoever did that may not have told Slurm's controller everything yet.
    """
    job = job_of(node)
    if not job:
        return ""

    def is_known(fate: Fate) -> bool:
        return fate.over or not (left or fate.state == "COMPLETING")

    fate = wait_until(lambda: fate_of(job), _FATE_S, _POLL_S, is_known)
    if not fate.over:
        return ""
    if fate.host_failed:
        lost = [
            host for host in read_hosts(ask("scontrol", "--oneliner", "show", "node", node.host)) if not is_well(host)
        ]
        if lost:
            reason = f" ({lost[0].reason})" if lost[0].reason else ""
            return f"was lost with its host {node.host}, which Slurm says is {lost[0].state}{reason}"
    return fate.told


ENGINE = "slurm"
DESCRIPTION = "cluster.json"
LIFE = "holder.lock"
"""Locked while the process lives that holds the agents."""
CONTROL = "holder.sock"
"""Where that process is asked for another agent."""
LOG = "holder.log"
FIRST = "agent.bin"
"""What every agent is sent first."""


def home_folder() -> Path:
    """Where this owner's Slurm clusters have a folder each, on this machine: another login node has others.

    It is short, because the path of a Unix socket has at most 107 bytes.
    """
    default = f"/tmp/lab-slurm-{os.getuid()}-{ownership.digest(ownership.owner())}"
    return Path(os.environ.get("LAB_SLURM_HOME", default))


def job_name(cluster: str) -> str:
    """What Slurm calls the job."""
    return f"lab-{cluster}"


def shared_folder(home: Path, cluster: str) -> Path:
    """The folder of a cluster on a file system that all nodes see."""
    default = Path.home() / ".lab" / "shared"
    return Path(os.environ.get("LAB_SLURM_SHARED", default)) / f"{cluster}-{ownership.digest(str(home))}"


def own_folder(home: Path, cluster: str, node: str) -> str:
    """The folder of a node on its machine: short, because the path of a Unix socket has at most 107 bytes."""
    return f"/tmp/lab-{os.getuid()}-{ownership.digest(str(home))}-{cluster}.{node}"


def socket_path(folder: Path, node: str) -> str:
    """Where the agent of a node is reached from this machine."""
    return str(folder / f"{node}.sock")


def said_file(handle: str) -> Path:
    """What Slurm and the agent said on standard error."""
    return Path(f"{handle}.said")


def read_description(folder: Path) -> dict[str, Any] | None:
    """What a cluster's folder says of it; None where it is half made, or no cluster."""
    try:
        data = json.loads((folder / DESCRIPTION).read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and "shape" in data else None


def write_description(folder: Path, data: dict[str, Any]) -> None:
    """Replace it at once."""
    new = folder / f"{DESCRIPTION}.new"
    new.write_text(json.dumps(data))
    new.rename(folder / DESCRIPTION)


def is_cluster(folder: Path) -> bool:
    """Whether this engine made a folder, whole or half, and nobody put anything else there."""
    try:
        return (folder / DESCRIPTION).exists() or not os.listdir(folder)
    except OSError:
        return False


_LEAVING_S = 20.0
"""Agents that were told leave long before; after that it is for Slurm alone to wait for the job."""
_SETTLE_S = 0.5
_REMOVAL_POLL_S = 0.03


def remove(home: Path, cluster: str | None, *, settle: bool) -> Removed:
    """Remove the owner's cluster of this name, or all of them.

    Raises:
        EngineUnavailable: Slurm does not answer.
    """
    folders = [f for f in ([home / cluster] if cluster else sorted(home.glob("*"))) if is_cluster(f)]
    for handle in (handle for folder in folders for handle in folder.glob("node*.sock")):
        handle.unlink(missing_ok=True)  # so that whoever uses a node learns that it was removed, not lost
    known = {folder.name: read_description(folder) or {} for folder in folders}
    found = jobs(home, cluster)
    if settle and not found:  # whoever was asking for one has just been killed
        time.sleep(_SETTLE_S)
        found = jobs(home, cluster)
    numbers = {str(about["job"]) for about in known.values() if about.get("job")} | {job.number for job in found}
    give_back(*sorted(numbers))
    if numbers:
        _await_end(numbers)
    for folder in folders:
        _end_holder(folder)
    stuck = []
    names = sorted({*known, *(job.cluster for job in found)})
    for name in names:
        shared = shared_folder(home, name)
        if not remove_tree(shared):
            stuck.append(str(shared))
        for path in set((home / name).glob("*")) - {home / name / DESCRIPTION}:  # tells what the rest is, till the end
            remove_tree(path)
        remove_tree(home / name)
        forget_cluster(ENGINE, name)
    nodes = sum(len(about.get("hosts", ())) for about in known.values())
    return Removed(clusters=tuple(names), nodes=nodes or len(found), files=len(names), stuck=tuple(stuck))


def _await_end(numbers: Collection[str]) -> None:
    """Wait until Slurm has nothing of some jobs any more, but not for ever."""
    question = ("squeue", "--noheader", f"--user={os.getuid()}", f"--jobs={','.join(numbers)}", "--format=%i")
    wait_until(lambda: not ask(*question).strip(), _LEAVING_S, _REMOVAL_POLL_S)


def _end_holder(folder: Path) -> None:
    """End the process that holds the agents of a cluster; it may end by itself meanwhile."""
    if holder_died(folder / LIFE):
        return
    with suppress(OSError, ValueError):
        os.kill(int((folder / LIFE).read_text()), signal.SIGKILL)
