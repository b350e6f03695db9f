"""Why a cluster that is there cannot be used."""

from __future__ import annotations

from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo
from lab.words import name_nodes

_STANDSTILLS = ("paused", "halted", "disconnected")
"""States in which a node is there and does not work."""


def why_unusable(info: ClusterInfo | None) -> str:
    """Why what is left of a cluster, or None, cannot be used."""
    if info is None:
        return "it had no nodes left"
    if info.run:
        return f"it was made for run {info.run}, which is dead"
    if info.intact:
        return "a node had not received its agent"
    return not_running(info)


def not_running(info: ClusterInfo) -> str:
    """Which of its nodes do not work."""
    odd: dict[str, list[str]] = {}
    for node in info.nodes:
        if node.state in _STANDSTILLS:
            odd.setdefault(node.state, []).append(node.name)
    if odd:
        return ", ".join(f"{name_nodes(names)} {'was' if len(names) == 1 else 'were'} {s}" for s, names in odd.items())
    running = {node.name for node in info.nodes if node.state in (RUNNING, STOPPED)}
    missing = [name for name in (f"node{rank}" for rank in range(info.shape.nodes)) if name not in running]
    return f"{name_nodes(missing)} of {info.shape.nodes} nodes were not running"
