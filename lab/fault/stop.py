"""A node loses its power."""

from __future__ import annotations

from lab.errors import LabError
from lab.fault.protocol import Ground
from lab.spec.faults import Fault


def apply(ground: Ground, fault: Fault) -> None:
    """Kill the node, where it runs; it is not marked as stopped by hand: whoever comes next may start it."""
    try:
        ground.engine.kill(ground.node(fault))
    except (LabError, OSError):
        if ground.is_up(fault):
            raise


def undo(ground: Ground, fault: Fault) -> None:
    """Start it again."""
    if not ground.is_up(fault):
        ground.engine.start(ground.cluster, [ground.node(fault)], announce=lambda _: None)


def in_force(ground: Ground, fault: Fault) -> bool:
    """Whether it does not run."""
    return not ground.is_up(fault)
