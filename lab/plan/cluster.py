"""What a cluster is: the shape that was asked for, and the nodes that exist."""

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
"""Neither PyTorch's usual 29500 nor another one that scripts are likely to choose for a store of their own."""
RUNNING = "running"
STOPPED = "stopped"
"""The state of a node that was stopped on purpose, and stays so until it is started."""


class Shape(Frozen):
    """What `lab up` was asked for; travels in a label of every node, so a cluster can be understood without a file."""

    nodes: int
    nproc_per_node: int = 1
    """Workers a node gets where a scenario does not say."""
    image: str | None = None
    """None: no image, as on the local engine."""
    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    """Processes and threads together."""
    disk_bytes: int | None = None
    """What a run may write on a node."""
    gpus: int = 0
    strict: bool = False
    """Whether nodes have no way out: an internal network, a read-only root, no volumes, tight limits."""
    volumes: tuple[Volume, ...] = ()
    requirements: tuple[str, ...] = ()
    """Packages besides those of the image, or on the local engine of the lab's own Python."""
    data: Mapping[str, Path] = field(default_factory=dict)
    """Folders of this machine that every node reads, by name."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every agent, and so of every worker."""
    hosts: tuple[str, ...] = ()
    """Hosts that the nodes are spread over, as the engine names them; none: all that it has."""
    allocation: Mapping[str, str] = field(default_factory=dict)
    """What a scheduler is told with the request, by the long names of its own options: `partition`, `time`."""

    def to_json(self) -> str:
        """The shape as one line of text."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def limits(self) -> Limits:
        """Those that were asked for."""
        return Limits(memory_bytes=self.memory_bytes, processes=self.processes, disk_bytes=self.disk_bytes)

    @classmethod
    def from_json(cls, text: str) -> Shape:
        """The inverse of `to_json`; what another version of the lab wrote otherwise is skipped."""
        return read_typed(cls, json.loads(text), lenient=True)

    def differences(self, other: Shape) -> list[str]:
        """What differs, a phrase each: `nodes: 3, asked for 5`."""
        return [
            f"{name.removesuffix('_bytes')}: {_field_text(name, mine)}, asked for {_field_text(name, asked)}"
            for name, mine in vars(self).items()
            if mine != (asked := getattr(other, name))
        ]


def _field_text(name: str, value: Any) -> str:
    """The value of a field of a shape, as a person would write it."""
    if name == "memory_bytes" and value:
        return format_limit(value)
    if isinstance(value, Mapping):
        value = tuple(f"{key}={text}" for key, text in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


class Node(Frozen):
    """One node that exists."""

    name: str
    """`node0`, `node1`, ...; also its name in DNS on the docker engine."""
    node_rank: int
    handle: str
    """What the engine calls it: a container's id, or the path of an agent's socket."""
    address: str
    """Its IP address on the cluster's network; empty if it has none now."""
    state: str = RUNNING
    """`running`, `stopped`, or the engine's word for what else it is."""
    host: str = ""
    """The host that it runs on; empty where the engine has one only."""


class ClusterInfo(Frozen):
    """A cluster that exists, wholly or in part."""

    name: str
    engine: str
    shape: Shape
    nodes: tuple[Node, ...]
    owner: str
    """`user@host` of whoever made it."""
    run: str | None = None
    """The run that it was made for and that will remove it; None for a cluster from `lab up`."""
    version: str = ""
    """Version of the lab that made it."""
    master_addr: str = "node0"
    """What MASTER_ADDR is on this cluster."""
    master_port: int = MASTER_PORT
    """What MASTER_PORT is: another one where nodes of several clusters may share an address."""
    shared: str = "/shared"
    """Where the nodes see their common volume."""
    data: str = "/data"
    """The folder in which the nodes see their data, each by its name."""
    gpus: GpuNumbers = "node"
    """How GPUs are numbered: on each node from 0, on the machine of all nodes, or as the engine alone knows."""
    limits: Limits = Limits()  # a tuple
    """What each node may use, whether asked for or not."""

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
        there = all(node.state in (RUNNING, STOPPED) for node in self.nodes)
        return there and len(self.nodes) == self.shape.nodes

    @property
    def stays(self) -> bool:
        """Whether it is intact and stays, and was not made for one run."""
        return self.intact and self.run is None

    def named(self, *names: str) -> list[Node]:
        """The nodes of these names or numbers, in order.

        Raises:
            UsageError: there is none of such a name; the message says which was probably meant.
        """
        known = {word: node for node in self.nodes for word in (node.name, str(node.node_rank))}
        there = [node.name for node in self.nodes]
        for name in names:
            if name not in known:
                meant = did_you_mean(name, there)
                raise UsageError(f"cluster {self.name} has no node {name!r}{meant}", f"it has {name_nodes(there)}")
        return [node for node in self.nodes if {node.name, str(node.node_rank)} & {*names}]
