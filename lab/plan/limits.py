"""Limits of a node, and whether a machine has the capacity for some nodes and ranks. Pure."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import NamedTuple

from lab.errors import ClusterUnfit
from lab.node.messages.typed import Misfit, read_typed
from lab.words import format_bytes, format_count, format_limit

_RANK_BYTES = 13_000_000
"""Memory that a rank does not share with its agent: 11.4 MB of its own, and the kernel's tables and sockets."""
_RANK_THREADS = 4
"""Its main thread, and those of gloo and of the connection to the store."""
_OWN_FILES = 64
_MOST = 1 << 16
"""Upper bound of the nodes on one machine."""
FEW_RANKS = 16
"""Fewer ranks fit wherever one does, so the capacity is not checked."""


class Capacity(NamedTuple):
    """What a machine has left for nodes; None: unknown."""

    memory_bytes: int | None = None
    threads: int | None = None
    """Processes and threads that may still start."""
    open_files: int | None = None
    """Of one process: a rank has a connection to every other, and a run has two files for each rank."""
    addresses: int | None = None
    """Of one network of nodes."""


class NodeCost(NamedTuple):
    """Resources of one idle node of an engine, and those that all nodes share."""

    node_bytes: int
    shared_bytes: int
    node_threads: int = 1


def files_of_run(nodes: int, nproc_per_node: int) -> int:
    """Return the open files of a command that runs this many ranks: a channel per node, a log and a trace per rank."""
    return _OWN_FILES + nodes + 2 * nodes * nproc_per_node


def _needs(nodes: int, nproc_per_node: int, cost: NodeCost) -> dict[str, int]:
    """Return what this many nodes need of each field of `Capacity`.

    A rank has a connection to each other rank; the command itself needs the most files of one process.
    """
    ranks = nodes * nproc_per_node
    return {
        "memory_bytes": cost.shared_bytes + nodes * cost.node_bytes + ranks * _RANK_BYTES,
        "threads": nodes * cost.node_threads + ranks * _RANK_THREADS,
        "open_files": files_of_run(nodes, nproc_per_node),
        "addresses": nodes,
    }


_WORDS = {
    "memory_bytes": "of memory",
    "threads": "processes and threads",
    "open_files": "open files in one process",
    "addresses": "addresses in one network",
}


def refuse_excess_nodes(nodes: int, nproc_per_node: int, capacity: Capacity, cost: NodeCost) -> None:
    """Refuse more nodes, each with this many ranks, than the machine has capacity for.

    Raises:
        ClusterUnfit: the capacity is too small; the message names the resource, and how many nodes would fit.
    """
    for name, needed in _needs(nodes, nproc_per_node, cost).items():
        has: int | None = getattr(capacity, name)
        if has is not None and needed > has:
            fit = bisect_right(range(1, _MOST), has, key=lambda some: _needs(some, nproc_per_node, cost)[name])
            amount = format_bytes if name == "memory_bytes" else "{:,}".format
            raise ClusterUnfit(
                f"{format_count(nodes, 'node')} x {format_count(nproc_per_node, 'rank')} need about {amount(needed)} "
                f"{_WORDS[name]}, but this machine has {amount(has)}: "
                + (f"at most {format_count(fit, 'node fits', 'nodes fit')}" if fit else "no node fits"),
                "ask for fewer nodes, or for fewer ranks on each",
            )


_PART_FOR_ALL_NODES = 0.8
"""Part of the machine's memory that all nodes may use together."""
_LEAST_MEMORY_BYTES = 1 << 30
_PROCESSES = 512
_PROCESSES_PER_CORE = 256
_STRICT_MEMORY_BYTES = 2 << 30
_STRICT_PROCESSES = 256
_STRICT_DISK_BYTES = 256 << 20
_PART_OF_THE_DISK = 0.5
"""Part of the disk space that is free when the cluster is created."""
_LEAST_DISK_BYTES = 1 << 30
_DISK_BYTES = 16 << 30
"""Default limit if the free space is unknown."""
_UNIT_BYTES = 256 << 20
"""Default limits are multiples of it, which are easy to read."""


class Machine(NamedTuple):
    """The machine that nodes run on."""

    cores: int
    memory_bytes: int
    free_disk_bytes: int | None = None
    """None: unknown."""
    capacity: Capacity = Capacity()
    """Resources that are left for nodes and ranks."""


class Limits(NamedTuple):
    """Limits of one node; None: no limit."""

    memory_bytes: int | None = None
    processes: int | None = None
    """Processes and threads together."""
    disk_bytes: int | None = None
    """Bytes that one run may write; on a strict cluster, the size of each writable folder."""

    def to_json(self) -> str:
        """Return the limits as one line of text."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Limits:
        """Parse the output of `to_json`; a field from another version of the lab that does not fit is no limit."""
        try:
            return read_typed(cls, json.loads(text), lenient=True)
        except (ValueError, Misfit):
            return cls()

    def describe(self) -> str:
        """Return the limits in words: `4 GiB of memory, 1,024 processes and threads, 8 GiB of disk`."""
        memory = f"{format_limit(self.memory_bytes)} of memory" if self.memory_bytes else "no memory limit"
        count = f"{self.processes:,} processes and threads" if self.processes else "no process limit"
        disk = f"{format_limit(self.disk_bytes)} of disk" if self.disk_bytes else "no disk limit"
        return f"{memory}, {count}, {disk}"


def limits_for(nodes: int, asked: Limits, machine: Machine, *, strict: bool = False) -> Limits:
    """Return the limits of each node: the requested ones, else its share of the machine."""
    part = int(machine.memory_bytes * _PART_FOR_ALL_NODES / nodes)
    memory = min(max(part, _LEAST_MEMORY_BYTES), machine.memory_bytes)
    processes = _PROCESSES + _PROCESSES_PER_CORE * machine.cores
    disk = _DISK_BYTES
    if machine.free_disk_bytes is not None:
        disk = max(int(machine.free_disk_bytes * _PART_OF_THE_DISK / nodes), _LEAST_DISK_BYTES)
    if strict:
        memory, processes, disk = min(memory, _STRICT_MEMORY_BYTES), _STRICT_PROCESSES, _STRICT_DISK_BYTES
    return Limits(
        memory_bytes=asked.memory_bytes or memory // _UNIT_BYTES * _UNIT_BYTES,
        processes=asked.processes or processes,
        disk_bytes=asked.disk_bytes or disk // _UNIT_BYTES * _UNIT_BYTES,
    )
