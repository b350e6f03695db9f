"""The MPI backend of `torch.distributed` for PyTorch's own wheels, which are built without it.

Once installed, nothing has to be imported: `init_process_group("mpi")` works in scripts that an MPI launcher starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__version__ = "0.1.0"
__all__ = ["activate"]


def activate() -> None:
    """Give `torch.distributed` what a torch that was built with MPI has.

    torch calls this at the end of its import (entry point group `torch.backends`). A torch with an MPI of its own stays
    as it is, and so does one without `torch.distributed`. MPI itself is neither loaded nor started here.
    """
    import torch.distributed

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    if getattr(distributed_c10d, "_MPI_AVAILABLE", None) is False:
        distributed_c10d.ProcessGroupMPI = _WhenAsked
        distributed_c10d._MPI_AVAILABLE = True  # noqa: SLF001 - torch has no other way


class _WhenAsked:
    """Stands for the class of MPI groups until the first one is made: only then is mpi4py imported."""

    @staticmethod
    def create(ranks: Sequence[int]) -> Any:
        """Make a group, as torch asks for it: of these ranks of the world; of all where there are none."""
        from torch_mpi.group import ProcessGroupMPI

        return ProcessGroupMPI.create(ranks)
