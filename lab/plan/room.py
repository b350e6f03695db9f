"""Whether a machine has room for so many nodes and ranks; if not, that is refused with what would fit. Pure.

What nodes and ranks take are estimates, from measurements with torch 2.13 on the CPU of x86-64 (`docs/many-nodes.md`):
of ranks that are in one process group of gloo and hold nothing of their own. Scripts take more; this is the least.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from lab.errors import ClusterUnfit
from lab.words import format_bytes, plural

_RANK_BYTES = 13_000_000
"""Beyond what it shares with its agent: 11.4 MB of its own, and the kernel's tables and sockets for it."""
_RANK_THREADS = 4
"""Its own, and those of gloo and of the connection to the store."""
_FILES_BESIDE = 64
_MOST = 1 << 16
"""Nodes that a machine is thought to hold at most."""
FEW_RANKS = 16
"""So many fit wherever one does, and are not worth a look."""


class Room(NamedTuple):
    """What a machine has left for nodes; None: it does not say."""

    memory_bytes: int | None = None
    threads: int | None = None
    """Processes and threads that may still begin."""
    open_files: int | None = None
    """Of one process: a rank has a connection to every other, and a run has two files for each."""
    all_open_files: int | None = None
    """Of all processes together."""
    addresses: int | None = None
    """Of one network for nodes."""


class NodeCost(NamedTuple):
    """What one node of an engine takes at rest, and all together besides."""

    node_bytes: int
    shared_bytes: int
    node_threads: int = 1


class _Demand(NamedTuple):
    """What nodes need of one thing."""

    what: str
    need: Callable[[int, int, NodeCost], int]
    """Of so many nodes with so many ranks each."""
    amount: Callable[[int], str] = "{:,}".format


def files_of_run(nodes: int, nproc_per_node: int) -> int:
    """What a command has open that runs so many ranks: a channel for each node, a log and a trace for each rank."""
    return _FILES_BESIDE + nodes + 2 * nodes * nproc_per_node


def _open_files(nodes: int, nproc_per_node: int, _: NodeCost) -> int:
    """Of the process that needs most: a rank has a connection for each other rank, which is less."""
    return files_of_run(nodes, nproc_per_node)


def _all_open_files(nodes: int, nproc_per_node: int, _: NodeCost) -> int:
    ranks = nodes * nproc_per_node
    return ranks * (ranks + _FILES_BESIDE)


def _memory(nodes: int, nproc_per_node: int, cost: NodeCost) -> int:
    return cost.shared_bytes + nodes * (cost.node_bytes + nproc_per_node * _RANK_BYTES)


def _threads(nodes: int, nproc_per_node: int, cost: NodeCost) -> int:
    return nodes * (cost.node_threads + nproc_per_node * _RANK_THREADS)


def _addresses(nodes: int, _: int, __: NodeCost) -> int:
    return nodes


_DEMANDS = {
    "memory_bytes": _Demand("of memory", _memory, format_bytes),
    "threads": _Demand("processes and threads", _threads),
    "open_files": _Demand("open files in one process", _open_files),
    "all_open_files": _Demand("open files in all processes together", _all_open_files),
    "addresses": _Demand("addresses in one network", _addresses),
}


def refuse_crowd(nodes: int, nproc_per_node: int, room: Room, cost: NodeCost) -> None:
    """Refuse more nodes, each with so many ranks, than there is room for.

    Raises:
        ClusterUnfit: they need more of something than there is; the message says of what, and how many would fit.
    """
    for name, has in room._asdict().items():
        demand = _DEMANDS[name]
        needed = demand.need(nodes, nproc_per_node, cost)
        if has is not None and needed > has:
            fit = _most_nodes(demand, has, nproc_per_node, cost)
            raise ClusterUnfit(
                f"{plural(nodes, 'node')} x {plural(nproc_per_node, 'rank')} need about {demand.amount(needed)} "
                f"{demand.what} and this machine has {demand.amount(has)}: "
                + (f"at most {plural(fit, 'node fits', 'nodes fit')}" if fit else "not one node fits"),
                "ask for fewer nodes, or for fewer ranks on each",
            )


def _most_nodes(demand: _Demand, has: int, nproc_per_node: int, cost: NodeCost) -> int:
    return bisect_right(range(1, _MOST), has, key=lambda nodes: demand.need(nodes, nproc_per_node, cost))
