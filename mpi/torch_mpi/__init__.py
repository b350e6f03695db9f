"""The MPI backend of `torch.distributed` for PyTorch's own wheels, which are built without it.

Once installed, nothing has to be imported: `init_process_group("mpi")` works in scripts that an MPI launcher starts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

__version__ = "0.1.0"
__all__ = ["activate"]


_STARTED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Of these variables every MPI launcher sets one."""


def activate() -> None:
    """Give `torch.distributed` what a torch that was built with MPI has.

    torch calls this at the end of its import (entry point group `torch.backends`). A torch with an MPI of its own stays
    as it is, and so does one without `torch.distributed`. MPI itself is neither loaded nor started here.

    `is_mpi_available()` is true where an MPI launcher started the process, or it has asked for MPI: accelerate takes
    MPI wherever there is one, and a process that is alone cannot use it.
    """
    import torch.distributed

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    if getattr(distributed_c10d, "_MPI_AVAILABLE", None) is False:
        distributed_c10d.ProcessGroupMPI = _WhenAsked
        distributed_c10d._MPI_AVAILABLE = any(name in os.environ for name in _STARTED)  # noqa: SLF001 - no other way
        distributed_c10d._new_process_group_helper = _asked(distributed_c10d)  # noqa: SLF001
        # From torch 2.15 on it attaches its flight recorder to other groups, which those in Python refuse.
        self_recording: set[str] = getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        self_recording.add("mpi")


class _WhenAsked:
    """Stands for the class of MPI groups until the first one is made: only then is mpi4py imported."""

    timeout: timedelta | None = None
    """That of the group that is being made."""

    @classmethod
    def create(cls, ranks: Sequence[int]) -> Any:
        """Make a group, as torch asks for it: of these ranks of the world; of all where there are none."""
        from torch_mpi.group import ProcessGroupMPI

        return ProcessGroupMPI.create(ranks, cls.timeout)


def _asked(distributed_c10d: Any) -> Callable[..., Any]:
    """How torch makes a group, with what it does not tell MPI: how long its calls may take."""
    make = distributed_c10d._new_process_group_helper  # noqa: SLF001

    @functools.wraps(make)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if "mpi" in str(named.get("backend", arguments[3:4])):
            distributed_c10d._MPI_AVAILABLE = True  # noqa: SLF001
        _WhenAsked.timeout = named.get("timeout")
        return make(*arguments, **named)

    return wrapper
