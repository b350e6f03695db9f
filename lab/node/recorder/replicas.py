"""The `norms` lines: the norm of every parameter of a DDP module after its optimizer's step 1, 2, 4, 8, ...

They are the same on all ranks as long as the replicas are. Norms of large parameters are those of a sample.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal

_SAMPLE = 4096
"""Of a larger parameter about so many elements are looked at."""


class _Replica:
    """A DDP module of this process, with how often an optimizer changed it."""

    def __init__(self, module: Any, number: int, parameters: list[Any]) -> None:
        self.module = weakref.ref(module)
        self.number = number
        self.parameters = [weakref.ref(parameter) for parameter in parameters]
        self.known = {id(parameter) for parameter in parameters}
        self.steps = 0


_replicas: list[_Replica] = []


def add(module: Any, number: int, parameters: list[Any]) -> None:
    """Watch a DDP module that has been constructed; its parameters are in DDP's order."""
    _replicas.append(_Replica(module, number, parameters))


def watch(module: ModuleType) -> None:
    """Have the steps of all optimizers of `torch.optim.optimizer` watched."""
    module.register_optimizer_step_post_hook(marks.inlined(_after_step, marks.nothing))


def _after_step(optimizer: Any, *_: Any) -> None:
    if not _replicas or not journal.on:
        return
    first = {id(group["params"][0]) for group in optimizer.param_groups if group["params"]}
    for replica in _replicas:
        if first & replica.known and replica.module() is not None:
            replica.steps += 1
            if replica.steps & (replica.steps - 1) == 0:
                _write(replica)


def _write(replica: _Replica) -> None:
    try:
        norms = [_norm(parameter()) for parameter in replica.parameters]
    except (AttributeError, RuntimeError, TypeError):
        return  # parameters of a kind that nobody thought of
    journal.add("norms", d=replica.number, steps=replica.steps, norms=norms)


def _norm(parameter: Any) -> Any:
    """None for one that is not plain numbers in this process's memory."""
    import torch

    if parameter is None or not parameter.is_cpu or parameter.layout is not torch.strided or parameter.is_complex():
        return None
    flat = parameter.detach().reshape(-1)
    flat = flat[:: max(1, flat.numel() // _SAMPLE)]
    norm = torch.linalg.vector_norm(flat.double()).item()
    return float(f"{norm:.9g}") if norm - norm == 0 else str(norm)
