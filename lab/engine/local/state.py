"""What exists on the local engine: clusters by their folders, their nodes, and how both end."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from lab.engine import ownership
from lab.engine.held import (
    KILLED,
    agent_pid,
    exit_code,
    holder_died,
    listens,
    paused_pid,
    stopped_file,
)
from lab.engine.protocol import NodeState, Removed
from lab.errors import ClusterError, EngineUnavailable
from lab.node import processes
from lab.node.files import remove_tree
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.waiting import wait_until
from lab.words import format_duration

ENGINE = "local"
_DYING_S = 0.3
"""What a killed agent listens at may close so much later than its connections."""


def read_cluster(folder: Path) -> ClusterInfo | None:
    """The cluster in a folder; None where there is none."""
    try:
        data = json.loads((folder / DESCRIPTION).read_text())
        shape, network = Shape.from_json(data["shape"]), str(data["network"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or half made: nothing runs there yet
    nodes = []
    for node_rank in range(shape.nodes):
        handle = str(folder / f"node{node_rank}.sock")
        node = Node(name=f"node{node_rank}", node_rank=node_rank, handle=handle, address=address(network, node_rank))
        nodes.append(replace(node, state=_state(node)))
    return ClusterInfo(
        name=folder.name,
        engine=ENGINE,
        shape=shape,
        nodes=tuple(nodes),
        owner=ownership.owner(),
        run=data.get("run"),
        version=data.get("version", ""),
        limits=shape.limits,
        gpus="machine",
        master_addr=address(network, 0),
        shared=str(folder / "shared"),
        data=str(folder / DATA),
    )


def nodeless(home: Path) -> list[str]:
    """Names of the clusters of which something is there, but no node."""
    return [folder.name for folder in sorted(home.glob("*")) if is_cluster(folder) and read_cluster(folder) is None]


def _state(node: Node) -> str:
    try:
        return "halted" if processes.is_stopped(agent_pid(node)) else RUNNING
    except BlockingIOError:
        return "halted"
    except OSError:
        return STOPPED if stopped_file(node.handle).exists() else "dead"


def running_python(node: Node) -> Path | None:
    """The Python that runs a node; None where it does not run."""
    try:
        words = Path(f"/proc/{agent_pid(node)}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return Path(os.fsdecode(words[0]))


def packages_of(node: Node) -> str:
    """The virtual environment that the workers of a node use; empty where there is none, or the node does not run."""
    try:
        variables = Path(f"/proc/{agent_pid(node)}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    named = f"{PACKAGES_VARIABLE}=".encode()
    return next((os.fsdecode(one.removeprefix(named)) for one in variables if one.startswith(named)), "")


def node_state(node: Node) -> NodeState:
    """What became of a node.

    Raises:
        EngineUnavailable: the process that holds all nodes of its cluster was killed.
    """
    handle = Path(node.handle)
    if paused_pid(node.handle):
        return NodeState(running=True)
    if not wait_until(lambda: not listens(node.handle), _DYING_S):
        return NodeState(running=True)
    gone = not handle.exists()
    if not gone and holder_died(handle.parent / LIFE):
        raise EngineUnavailable(
            f"the process that holds the local nodes of cluster {handle.parent.name} was killed",
            "`lab down` removes the rest",
        )
    code = None if gone else exit_code(node)
    return NodeState(running=False, exit_code=code if gone or code is not None else KILLED, gone=gone)


MARK = "LAB_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster."""
PACKAGES_VARIABLE = "LAB_PACKAGES"
"""Environment variable that names the virtual environment of workers, where they have one."""
DESCRIPTION = "cluster.json"
DATA = "data"
"""Holds a link to each folder of data, by its name."""
LIFE = "zygote.lock"
"""Locked while the process lives that holds the nodes."""
CONTROL = "zygote.sock"
"""Where that process is asked for another agent."""
_NODES_OF_A_NETWORK = 250


def mark(home: Path, cluster: str) -> str:
    """The label of a cluster's processes."""
    return f"{home}/{cluster}"


def address(network: str, node_rank: int) -> str:
    """A node's loopback address: in the network with these two middle octets, or where that is full, in the next."""
    further, place = divmod(node_rank, _NODES_OF_A_NETWORK)
    return f"127.{network_name(network_number(network) + further)}.{place + 1}"


def networks_for(nodes: int) -> int:
    """How many networks, one after the other, so many nodes take."""
    return -(-nodes // _NODES_OF_A_NETWORK)


def network_number(network: str) -> int:
    """Which of all networks it is, from its two middle octets."""
    upper, lower = map(int, network.split("."))
    return upper * 256 + lower


def network_name(number: int) -> str:
    """The two middle octets of a network."""
    return f"{number // 256}.{number % 256}"


def is_cluster(folder: Path) -> bool:
    """Whether this engine made a folder, whole or half, and nobody put anything else there."""
    try:
        return (folder / DESCRIPTION).exists() or set(os.listdir(folder)) <= {"shared", "site", DATA}
    except OSError:
        return False


def count_nodes(folder: Path) -> int:
    """How many nodes the cluster in a folder was made with; 0 where it does not say."""
    try:
        return int(json.loads(json.loads((folder / DESCRIPTION).read_text())["shape"])["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


_DEADLINE_S = 10.0


def remove(home: Path, cluster: str | None) -> Removed:
    """Remove the cluster of this name, or all of them.

    Raises:
        ClusterError: a process does not end, or a folder cannot be removed.
    """
    prefix = f"{home}/{cluster or ''}"
    folders = [f for f in ([home / cluster] if cluster else sorted(home.glob("*"))) if is_cluster(f)]
    for handle in (handle for folder in folders for handle in folder.glob("*.sock")):
        handle.unlink(missing_ok=True)  # so that whoever uses a node learns that it was removed, not killed
    killed, end = set(), time.monotonic() + _DEADLINE_S
    while victims := _marked(prefix, exact=cluster is not None):
        for pid in victims:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > end:
            raise ClusterError(
                f"processes {', '.join(map(str, sorted(victims)))} did not end within {format_duration(_DEADLINE_S)}"
            )
        time.sleep(0.005)
    nodes = sum(count_nodes(folder) for folder in folders)
    for folder in folders:
        for path in set(folder.glob("*")) - {folder / DESCRIPTION}:  # which tells what the rest is, if this is killed
            remove_tree(path)
    stuck = [str(_set_aside(folder)) for folder in folders if not remove_tree(folder)]
    names = {folder.name for folder in folders}
    return Removed(clusters=tuple(sorted(names)), nodes=nodes or len(killed), files=len(folders), stuck=tuple(stuck))


def _set_aside(folder: Path) -> Path:
    """Free the name of a cluster whose folder holds something that this user cannot remove; returns where it is now.

    Raises:
        ClusterError: not even that can be done.
    """
    aside = folder.with_name(f".{folder.name}-{time.time_ns()}")
    try:
        return folder.rename(aside)
    except OSError as error:
        raise ClusterError(
            f"{folder} cannot be removed: it holds something that you may not remove",
            "have it removed, or use another name with --name",
        ) from error


def _marked(mark: str, *, exact: bool) -> list[int]:
    """Processes whose environment carries the label, zombies excepted, and all that they started."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in variables if exact else any(variable.startswith(wanted) for variable in variables):
            found.append(int(entry))
    if not found:
        return []
    return [*found, *set(processes.descendants(*found)).difference(found, [os.getpid()])]
