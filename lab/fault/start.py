"""A node that was stopped gets its power back."""

from __future__ import annotations

from lab.fault.protocol import Ground
from lab.spec.faults import Fault


def apply(ground: Ground, fault: Fault) -> None:
    """Start the node, where it does not run, and wait until its agent can fork workers."""
    if not ground.is_up(fault):
        ground.engine.start(ground.cluster, [ground.node(fault)], announce=lambda _: None)


def undo(ground: Ground, fault: Fault) -> None:
    """Leave it: a node that runs is what a cluster has."""


def in_force(ground: Ground, fault: Fault) -> bool:
    """Whether it runs."""
    return ground.is_up(fault)
