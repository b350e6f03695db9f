"""Who a process group is: its name, rank, and size.

torch's own class asks its backends for these, of which a group that is written in Python has none.
"""

# ruff: noqa: D102 - methods that override PyTorch's are documented there
# ruff: noqa: N815 - and named by it

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup

from torch_mpi.limits import Limit

_CPU = torch.device("cpu")


class Identity(ProcessGroup):
    """A group of so many ranks, of which this process is one."""

    supports_coalescing = supports_splitting = supports_time_estimate = False

    def __init__(self, rank: int, size: int, limit: Limit) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # this constructor is not in torch's stubs
        self._rank, self._size, self._limit = rank, size, limit
        self._name = self._description = ""

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    def name(self) -> str:
        return "mpi"

    getBackendName = _get_backend_name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, desc: str) -> None:
        self._description = desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(getGroupName, setGroupName)
    group_desc = property(getGroupDesc, setGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        return [_CPU]

    def _get_backend(self, device: Any) -> Any:
        """Itself: what torch asks of a backend, it asks of this."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"mpi: no backend for {device}: this one takes tensors in the memory of the CPU")
        return self

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on calls may take so long."""
        self._limit.seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: numbers are equal on all ranks from the beginning."""
