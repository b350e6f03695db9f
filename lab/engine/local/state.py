"""What exists on the local engine: clusters by their folders, and what became of their nodes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lab.engine import ownership
from lab.engine.local.channel import agent_pid, listens, paused_pid
from lab.engine.local.layout import DATA, DESCRIPTION, LIFE, PACKAGES_VARIABLE, address, is_cluster, stopped_file
from lab.engine.protocol import NodeState
from lab.errors import EngineUnavailable
from lab.node import processes
from lab.node.config import ended_file
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.waiting import wait_until

ENGINE = "local"
_DYING_S = 0.3
"""What a killed agent listens at may close so much later than its connections."""
_TELLING_S = 1.0
"""The parent of the agents may say so much later how one ended."""


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
    if not gone and _holder_died(handle.parent / LIFE):
        raise EngineUnavailable(
            f"the process that holds the local nodes of cluster {handle.parent.name} was killed",
            "`lab down` removes the rest",
        )
    return NodeState(running=False, exit_code=None if gone else _exit_code(node), gone=gone)


def _exit_code(node: Node) -> int:
    """How an agent ended, as its parent says."""

    def told() -> int | None:
        with suppress(OSError, ValueError):
            return int(Path(ended_file(node.handle)).read_text())
        return None

    code = wait_until(told, _TELLING_S, enough=lambda code: code is not None)
    return 128 + signal.SIGKILL if code is None else code


def _holder_died(life: Path) -> bool:
    """Whether the process was killed that holds a file locked as long as it lives."""
    try:
        with life.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is locked, or gone
        return False
    return True
