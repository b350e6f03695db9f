"""Measurements at the steps of optimizers: norms of the changed parameters, and causes of slow steps.

The `norms` and `weights` lines are about the steps 1, 2, 4, 8, ..., and the last. `norms` is about the parameters of a
DDP module: they are the same on all ranks as long as the replicas are. `weights` is about an optimizer without such
parameters. Both have the norms of the gradients, and the settings of the optimizer. For large tensors, norms are those
of the sample that a summary has.

`gc` has the times when Python's garbage collector stopped all threads.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from ....node.recorder.journal import journal, source
from ....node.recorder.patching import call_after_making, do_nothing, inline_for_compile


class _Trained:
    """The parameters that an optimizer changes: those of a DDP module, or of an optimizer without such parameters."""

    def __init__(self, kind: str, key: str, number: int, of: Any, read: Callable[[Any], dict[str, Any]]) -> None:
        self._kind, self._facts, self._of, self._read = kind, {key: number}, weakref.ref(of), read
        self._steps = self._written = 0
        self._last: dict[str, Any] = {}
        """The line of the step that `step` wrote last, and the settings of its optimizer."""

    @property
    def is_there(self) -> bool:
        """Return whether the module, or the optimizer, still exists."""
        return self._of() is not None

    def step(self, optimizer: Any) -> None:
        """Count a step of its optimizer."""
        self._steps += 1
        if self._steps & (self._steps - 1) == 0:
            settings = _read_settings(optimizer)
            made_at, first = _made.get(optimizer, ("", {}))
            self._last = {"at": source.line(), "set": settings} | ({"made": made_at} if settings == first else {})
            self.write()

    def write(self) -> None:
        """Write the current norms, unless they are in the trace already, or the parameters no longer exist."""
        if (of := self._of()) is None or self._steps == self._written:
            return
        with suppress(AttributeError, RuntimeError, TypeError, ValueError):  # unexpected parameters
            journal.add(self._kind, **self._last, **self._facts, steps=self._steps, **self._read(of))
            self._written = self._steps


_MOST_SETTINGS = 16
_modules: list[tuple[_Trained, set[int]]] = []
"""Modules, each with the identities of its parameters."""
_numbers = itertools.count(1)
_optimizers: weakref.WeakKeyDictionary[Any, _Trained] = weakref.WeakKeyDictionary()
"""Optimizers without parameters of a DDP module."""
_made: weakref.WeakKeyDictionary[Any, tuple[str, dict[str, float]]] = weakref.WeakKeyDictionary()
"""By optimizer: the line that constructed it, and its settings then."""
_stepping: list[weakref.ref[Any]] = []
"""The optimizer whose step is in progress; steps of others inside of it are part of it."""


def add_module(module: Any, number: int, parameters: list[Any]) -> None:
    """Watch a DDP module after its construction; its parameters are in DDP's order."""
    references = [weakref.ref(parameter) for parameter in parameters]

    def read(_: Any) -> dict[str, Any]:
        known = [parameter() for parameter in references]
        return {"norms": [_norm(one) for one in known], "grads": [_norm(getattr(one, "grad", None)) for one in known]}

    _modules.append((_Trained("norms", "d", number, module, read), set(map(id, parameters))))


def watch_optimizers(module: ModuleType) -> None:
    """Watch the steps of all optimizers of `torch.optim.optimizer`, and the garbage collector."""
    module.Optimizer.__init__ = call_after_making(_note_settings)(module.Optimizer.__init__)
    module.register_optimizer_step_pre_hook(inline_for_compile(_before_step, do_nothing))
    module.register_optimizer_step_post_hook(inline_for_compile(_after_step, do_nothing))
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def _note_settings(optimizer: Any) -> None:
    if journal.on:
        _made[optimizer] = source.line(), _read_settings(optimizer)


def _before_step(optimizer: Any, *_: Any) -> None:
    if journal.on and not (_stepping and _stepping[0]() is not None):
        _stepping[:] = [weakref.ref(optimizer)]


def _after_step(optimizer: Any, *_: Any) -> None:
    if not journal.on or id(optimizer) not in [id(of()) for of in _stepping]:
        return
    _stepping.clear()
    first = {id(group["params"][0]) for group in optimizer.param_groups if group["params"]}
    trained = [module for module, known in _modules if first & known and module.is_there]
    distributed = sys.modules.get("torch.distributed")
    if first and not trained and distributed is not None and distributed.is_initialized():
        if optimizer not in _optimizers:
            _optimizers[optimizer] = _Trained("weights", "o", next(_numbers), optimizer, _read_optimizer)
        trained = [_optimizers[optimizer]]
    for one in trained:
        one.step(optimizer)


def write_last_norms() -> None:
    """Write the norms after the last steps, at the end of the default group or of the script."""
    for one in (*(module for module, _ in _modules), *_optimizers.values()):
        one.write()


def _read_settings(optimizer: Any) -> dict[str, float]:
    """Return the numbers among the settings of an optimizer's first group: `lr`, `momentum`, ..."""
    group = optimizer.param_groups[0]
    numbers = {name: value for name, value in group.items() if isinstance(value, (int, float))}
    return {str(name): value for name, value in list(numbers.items())[:_MOST_SETTINGS] if value - value == 0}


def _read_optimizer(optimizer: Any) -> dict[str, Any]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        "sizes": [parameter.numel() for parameter in parameters],
        "grads": [_norm(parameter.grad) for parameter in parameters],
        "norms": [_norm(parameter) for parameter in parameters],
    }


def _norm(tensor: Any) -> Any:
    """Return the norm of the elements, or of the sample of a summary; None if it cannot be computed."""
    import torch

    from ....node.recorder.python_group import is_readable, sample_memory

    if tensor is None or not is_readable(tensor) or tensor.is_complex():
        return None
    flat = tensor.detach().contiguous()
    if not flat.numel():
        return 0.0
    length = torch.linalg.vector_norm(torch.frombuffer(sample_memory(flat), dtype=flat.dtype).double()).item()
    return float(f"{length:.9g}") if length - length == 0 else str(length)


# -- causes of slow steps

_LEAST_NS = 1_000_000
"""Shorter collections are not written: there are thousands of them."""
_collection_began = 0


def _on_collection(phase: str, facts: Mapping[str, Any]) -> None:
    global _collection_began
    if not journal.on:
        return
    now = time.monotonic_ns()
    if phase == "start":
        _collection_began = now
    elif _collection_began and now - _collection_began >= _LEAST_NS:
        journal.add("gc", t=now, took=now - _collection_began, gen=facts.get("generation"))
