"""What starts the workers of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lab.spec.launcher import Torchrun

LAB = "lab"
TORCHRUN = "torchrun"
MPIRUN = "mpirun"
LAUNCHERS = (LAB, TORCHRUN, MPIRUN)


class Launching(NamedTuple):
    """What starts the workers of a scenario."""

    name: str = LAB
    torchrun: Torchrun | None = None
    """What torchrun's agents are told; None where nobody says anything."""

    @property
    def told(self) -> Torchrun:
        """The same, with what they are told by default."""
        from lab.spec.launcher import Torchrun  # few runs have any

        return self.torchrun or Torchrun()

    def least_nodes(self, nnodes: int) -> int:
        """With so many of the nodes of a run it begins, and goes on when it has lost the others."""
        return (self.told.min_nodes or nnodes) if self.name == TORCHRUN else nnodes
