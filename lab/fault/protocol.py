"""What a kind of fault is, and what faults are done to."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, Protocol, cast

from lab.engine.protocol import Engine
from lab.plan.cluster import ClusterInfo, Node
from lab.spec.faults import Fault


class Ground(NamedTuple):
    """What faults are done to: the cluster of one run."""

    engine: Engine
    cluster: ClusterInfo

    def node(self, fault: Fault) -> Node:
        """The node that a fault is about."""
        return self.cluster.named(fault.node)[0]

    def is_up(self, fault: Fault) -> bool:
        """Whether that node runs now, as its engine sees it."""
        return self.engine.node_state(self.node(fault)).running


class Kind(Protocol):
    """A module of this package: what is done for one kind of fault. All of it may take seconds."""

    def apply(self, ground: Ground, fault: Fault) -> None:
        """Do it; it is in force when this returns.

        Raises:
            LabError: it cannot be done.
        """

    def undo(self, ground: Ground, fault: Fault) -> None:
        """Take it back, also where it is not in force.

        Raises:
            LabError: it cannot be taken back.
        """

    def in_force(self, ground: Ground, fault: Fault) -> bool:
        """Whether it is, as read back from where it was done.

        Raises:
            LabError: that cannot be read.
        """


def find_kind(fault: Fault) -> Kind:
    """The module of a fault's kind."""
    return cast("Kind", import_module(f"lab.fault.{fault.kind}"))
