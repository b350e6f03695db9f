"""A cluster: its requested shape, and its existing nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal

from lab.errors import UsageError
from lab.frozen import Frozen
from lab.node.messages.typed import read_typed
from lab.plan.limits import Limits
from lab.spec.keys import Volume
from lab.spec.reading import did_you_mean
from lab.words import format_limit, name_nodes

State = Literal["ready", "partial", "dead"]
GpuNumbers = Literal["node", "machine", "engine"]
MASTER_PORT = 28411
"""Neither PyTorch's usual 29500 nor a port that scripts are likely to choose for their own store."""
RUNNING = "running"
STOPPED = "stopped"
"""The state of a node that somebody stopped on purpose, until its next start."""


class Shape(Frozen):
    """The request of `lab up`. A label of every node holds it, so that a cluster can be described without a file."""

    nodes: int
    nproc_per_node: int = 1
    """Workers on a node if a scenario does not set it."""
    image: str | None = None
    """None: the engine has no images, such as the local engine."""
    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    """Processes and threads together."""
    disk_bytes: int | None = None
    """Bytes that a run may write on a node."""
    gpus: int = 0
    strict: bool = False
    """Whether nodes are isolated: an internal network, a read-only root, no volumes, tight limits."""
    volumes: tuple[Volume, ...] = ()
    requirements: tuple[str, ...] = ()
    """Packages in addition to those of the image, or of the lab's own Python on the local engine."""
    data: Mapping[str, Path] = field(default_factory=dict)
    """Folders of this machine that every node can read, by name."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every agent, and so of every worker."""
    hosts: tuple[str, ...] = ()
    """Hosts for the nodes, by the engine's names; empty: all hosts."""
    allocation: Mapping[str, str] = field(default_factory=dict)
    """Options for a scheduler by their long names: `partition`, `time`."""

    def to_json(self) -> str:
        """Return the shape as one line of text."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def limits(self) -> Limits:
        """The requested limits."""
        return Limits(memory_bytes=self.memory_bytes, processes=self.processes, disk_bytes=self.disk_bytes)

    @classmethod
    def from_json(cls, text: str) -> Shape:
        """Parse the output of `to_json`; skip fields of another version of the lab that do not fit."""
        return read_typed(cls, json.loads(text), lenient=True)

    def differences(self, other: Shape) -> list[str]:
        """Return the differences, a phrase each: `nodes: 3, requested 5`."""
        return [
            f"{name.removesuffix('_bytes')}: {_field_text(name, mine)}, requested {_field_text(name, asked)}"
            for name, mine in vars(self).items()
            if mine != (asked := getattr(other, name))
        ]


def _field_text(name: str, value: Any) -> str:
    """Return the value of a field of a shape in words."""
    if name == "memory_bytes" and value:
        return format_limit(value)
    if isinstance(value, Mapping):
        value = tuple(f"{key}={text}" for key, text in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Node(Frozen):
    """An existing node."""

    name: str
    """`node0`, `node1`, ...; also its name in DNS on the docker engine."""
    node_rank: int
    handle: str
    """The engine's name for it: a container's id, or the path of an agent's socket."""
    address: str
    """Its IP address on the cluster's network; empty if it has none now."""
    state: str = RUNNING
    """`running`, `stopped`, or the engine's word for another state."""
    host: str = ""
    """The host that it runs on; empty if the engine has only one."""


class ClusterInfo(Frozen):
    """An existing cluster, complete or not."""

    name: str
    engine: str
    shape: Shape
    nodes: tuple[Node, ...]
    owner: str
    """`user@host` of its creator."""
    run: str | None = None
    """The run that it was created for and that will remove it; None for a cluster of `lab up`."""
    version: str = ""
    """Version of the lab that created it."""
    master_addr: str = "node0"
    """MASTER_ADDR on this cluster."""
    master_port: int = MASTER_PORT
    """MASTER_PORT on this cluster; differs if nodes of several clusters may share an address."""
    shared: str = "/shared"
    """Path of the shared volume on the nodes."""
    data: str = "/data"
    """Path of the folder with all data on the nodes."""
    gpus: GpuNumbers = "node"
    """How GPUs are numbered: from 0 on each node, on the machine of all nodes, or as only the engine knows."""
    limits: Limits = Limits()  # a tuple
    """Limits of each node, requested or not."""

    @property
    def state(self) -> State:
        """`ready` if every node runs, `partial` if some do, `dead` if none does."""
        running = sum(node.state == RUNNING for node in self.nodes)
        if running == self.shape.nodes == len(self.nodes):
            return "ready"
        return "partial" if running else "dead"

    @property
    def intact(self) -> bool:
        """Whether every node runs, or was stopped on purpose."""
        return len(self.nodes) == self.shape.nodes and all(node.state in (RUNNING, STOPPED) for node in self.nodes)

    @property
    def stays(self) -> bool:
        """Whether it is intact and permanent, not created for one run."""
        return self.intact and self.run is None

    def named(self, *names: str) -> list[Node]:
        """Return the nodes with these names or numbers, in order.

        Raises:
            UsageError: there is no such node; the message suggests a similar name.
        """
        known = {word: node for node in self.nodes for word in (node.name, str(node.node_rank))}
        there = [node.name for node in self.nodes]
        for name in names:
            if name not in known:
                meant = did_you_mean(name, there)
                raise UsageError(f"cluster {self.name} has no node {name!r}{meant}", f"allowed: {name_nodes(there)}")
        return [node for node in self.nodes if {node.name, str(node.node_rank)} & {*names}]
