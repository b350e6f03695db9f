"""Which nodes of a cluster take part when a run begins, and whether that is enough to start its workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.errors import ClusterUnfit, UsageError
from lab.plan.cluster import STOPPED, ClusterInfo
from lab.spec.launching import Launching
from lab.words import listing, name_nodes, plural

if TYPE_CHECKING:
    from lab.plan.part import Part

HOST = "node0"
"""The node with the store at which all meet: nothing begins or goes on without it."""


def present(cluster: ClusterInfo, nnodes: int, parts: Sequence[Part]) -> list[str]:
    """The nodes that run when it begins: not those that are stopped, and then what its own parts do before."""
    there = {f"node{rank}": True for rank in range(nnodes)}
    there |= {node.name: node.state != STOPPED for node in cluster.nodes[:nnodes]}
    for part in parts:
        there |= part.before()
    return [name for name, runs in there.items() if runs]


def refuse_absence(name: str, cluster: ClusterInfo, nnodes: int, launching: Launching, parts: Sequence[Part]) -> None:
    """Refuse a run that cannot begin, or not with what is to be broken, because of nodes that do not run.

    Raises:
        ClusterUnfit: too many nodes are stopped.
        UsageError: its own parts stop too many before it begins, or start one that nothing takes in.
    """
    least = launching.least_nodes(nnodes)
    needs = plural(nnodes, "node") if least == nnodes else f"at least {plural(least, 'node')}, {HOST} among them"
    there = present(cluster, nnodes, parts)
    missing = [f"node{rank}" for rank in range(nnodes) if f"node{rank}" not in there]
    stops = [one for part in parts for one in part.stopping(missing)]
    if (len(there) < least or HOST not in there) and stops:
        raise UsageError(
            f"{name} is to {listing(stops)} before it begins, and with the launcher {launching.name} it needs {needs}",
            "say `launcher: {torchrun: {min_nodes: ...}}` for one that begins with fewer",
        )
    if len(there) < least or HOST not in there:
        raise ClusterUnfit(
            f"{name} needs {needs}, and {name_nodes(missing)} of cluster {cluster.name} "
            f"{'is' if len(missing) == 1 else 'are'} stopped",
            f"`lab start {' '.join(missing)}`, or take fewer nodes with --nodes",
        )
    for starts in (one for part in parts for one in part.starting()):
        if least == nnodes:
            raise UsageError(
                f"{name} is to {starts} in mid-run, and the launcher {launching.name} takes no node in",
                "say `launcher: {torchrun: {min_nodes: ...}}` for one that does",
            )
