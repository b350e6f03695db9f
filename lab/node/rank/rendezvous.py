"""Which store a process of a run is given: the run's at the run's address, its own rank 0's at every other one.

torchrun says `TORCHELASTIC_USE_AGENT_STORE=True`, and PyTorch then takes whatever address a script names for one where
somebody else hosts the store. A script that starts processes of its own, at an address of its own, then waits for ever.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from types import ModuleType
from typing import Any

VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
HOSTED = "true"
"""Not `True`, for processes that have nothing of the lab but their environment: those that a script starts.

The Python half of PyTorch, which asks for `True`, has their rank 0 host the store. The C++ half, which takes any way of
writing it, forgives rank 0 (from PyTorch 2.7 on) that a store is there already, if it is at the port of the run.
"""


def use_run_store() -> None:
    """Have the groups of this process, and of its forks, that meet at the run's address do so in the run's store."""
    from ..recorder.imports import when_imported

    if os.environ.get(VARIABLE) == HOSTED and os.environ.get("MASTER_PORT", "").isdecimal():
        address, port = os.environ.get("MASTER_ADDR", ""), int(os.environ["MASTER_PORT"])
        when_imported("torch.distributed.rendezvous", lambda module: _watch(module, address, port))


def _watch(module: ModuleType, run_address: str, run_port: int) -> None:
    create = getattr(module, "_create_c10d_store", None)
    if create is None:
        return  # another version of torch: rank 0 finds that there is a store

    def create_store(
        hostname: str, port: int, rank: int, world_size: int, timeout: Any, *rest: Any, **more: Any
    ) -> Any:
        if os.environ.get(VARIABLE) == HOSTED and port == run_port and _same_host(hostname, run_address):
            return module.TCPStore(hostname, port, world_size, is_master=False, timeout=timeout)
        return create(hostname, port, rank, world_size, timeout, *rest, **more)

    module._create_c10d_store = create_store  # type: ignore[attr-defined]


def _same_host(one: str, other: str) -> bool:
    if one == other:
        return True
    with suppress(OSError):
        return socket.gethostbyname(one) == socket.gethostbyname(other)
    return False
