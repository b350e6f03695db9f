"""Why a cluster that is there cannot be used."""

from __future__ import annotations

from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo

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
    odd = [f"{node.name} was {node.state}" for node in info.nodes if node.state in _STANDSTILLS]
    if odd:
        return ", ".join(odd)
    running = {node.name for node in info.nodes if node.state in (RUNNING, STOPPED)}
    missing = [name for name in (f"node{rank}" for rank in range(info.shape.nodes)) if name not in running]
    return f"{', '.join(missing)} of {info.shape.nodes} nodes were not running"
