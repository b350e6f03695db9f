"""What starts the workers of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lab.spec.launcher import Lab, Torchrun

LAB = "lab"
TORCHRUN = "torchrun"
MPIRUN = "mpirun"
LAUNCHERS = (LAB, TORCHRUN, MPIRUN)


class Launching(NamedTuple):
    """What starts the workers of a scenario."""

    name: str = LAB
    torchrun: Torchrun | None = None
    """What torchrun's agents are told; None where nobody says anything."""
    lab: Lab | None = None
    """What the lab itself is told."""

    @property
    def told(self) -> Torchrun:
        """The same, with what they are told by default."""
        from lab.spec.launcher import Torchrun  # few runs have any

        return self.torchrun or Torchrun()

    @property
    def max_restarts(self) -> int:
        """So often workers are begun anew."""
        told = self.lab if self.name == LAB else self.torchrun
        return told.max_restarts if told is not None else 0

    def least_nodes(self, nnodes: int) -> int:
        """With so many of the nodes of a run it begins, and goes on when it has lost the others."""
        return (self.told.min_nodes or nnodes) if self.name == TORCHRUN else nnodes
