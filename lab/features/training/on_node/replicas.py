"""The `norms` and `weights` lines: norms of what optimizers changed, after their steps 1, 2, 4, 8, ... and the last.

`norms` is about the parameters of a DDP module: they are the same on all ranks as long as the replicas are. `weights`
is about an optimizer that has none of those: with the norms of its gradients, by which they are found among the tensors
that were reduced. Norms of large tensors are those of the sample that a summary has.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from types import ModuleType
from typing import Any

from ....node.recorder.journal import journal, source
from ....node.recorder.patching import inlined, nothing

_UNFORESEEN = (AttributeError, RuntimeError, TypeError, ValueError)
"""What parameters of a kind that nobody thought of may raise."""


class _Replica:
    """A DDP module of this process, with how often an optimizer changed it."""

    def __init__(self, module: Any, number: int, parameters: list[Any]) -> None:
        self.module = weakref.ref(module)
        self.number = number
        self.parameters = [weakref.ref(parameter) for parameter in parameters]
        self.known = {id(parameter) for parameter in parameters}
        self.steps = self.told = 0


class _Other:
    """How far an optimizer is that has no parameter of a DDP module."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = self.told = 0


_replicas: list[_Replica] = []
_numbers = itertools.count(1)
_others: weakref.WeakKeyDictionary[Any, _Other] = weakref.WeakKeyDictionary()
"""Optimizers that have no parameter of a DDP module."""
_stepping: list[weakref.ref[Any]] = []
"""The optimizer whose step goes on: one that others step inside of is told as a whole."""


def add(module: Any, number: int, parameters: list[Any]) -> None:
    """Watch a DDP module that has been constructed; its parameters are in DDP's order."""
    _replicas.append(_Replica(module, number, parameters))


def watch(module: ModuleType) -> None:
    """Have the steps of all optimizers of `torch.optim.optimizer` watched."""
    module.register_optimizer_step_pre_hook(inlined(_before_step, nothing))
    module.register_optimizer_step_post_hook(inlined(_after_step, nothing))


def _before_step(optimizer: Any, *_: Any) -> None:
    if journal.on and not (_stepping and _stepping[0]() is not None):
        _stepping[:] = [weakref.ref(optimizer)]


def _after_step(optimizer: Any, *_: Any) -> None:
    if not journal.on or id(optimizer) not in [id(of()) for of in _stepping]:
        return
    _stepping.clear()
    groups = [group["params"] for group in optimizer.param_groups if group["params"]]
    first, ours = {id(parameters[0]) for parameters in groups}, False
    for replica in _replicas:
        if first & replica.known and replica.module() is not None:
            ours = True
            replica.steps += 1
            if replica.steps & (replica.steps - 1) == 0:
                _write_norms(replica)
    if groups and not ours and _is_distributed():
        other = _others.get(optimizer)
        if other is None:
            other = _others[optimizer] = _Other(next(_numbers))
        other.steps += 1
        if other.steps & (other.steps - 1) == 0:
            _write_weights(other, optimizer)


def finish() -> None:
    """Write the norms after the last steps, of what is still there: the default group ends, or the script."""
    for replica in _replicas:
        if replica.steps > replica.told and replica.module() is not None:
            _write_norms(replica)
    for optimizer, other in list(_others.items()):
        if other.steps > other.told:
            _write_weights(other, optimizer)


def _is_distributed() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized()


def _write_norms(replica: _Replica) -> None:
    try:
        norms = [_norm(parameter()) for parameter in replica.parameters]
    except _UNFORESEEN:
        return
    replica.told = replica.steps
    journal.add("norms", d=replica.number, steps=replica.steps, norms=norms)


def _write_weights(other: _Other, optimizer: Any) -> None:
    try:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        sizes = [parameter.numel() for parameter in parameters]
        gradients = [_norm(parameter.grad) for parameter in parameters]
        norms = [_norm(parameter) for parameter in parameters]
    except _UNFORESEEN:
        return
    at = source.line()
    other.told = other.steps
    journal.add("weights", o=other.number, steps=other.steps, at=at, sizes=sizes, grads=gradients, norms=norms)


def _norm(tensor: Any) -> Any:
    """None for one that is not plain numbers in this process's memory."""
    from ....node.recorder.values import norm

    return None if tensor is None else norm(tensor)
