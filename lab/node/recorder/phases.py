"""Record `mark` lines: the beginning and the end of each phase of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

from . import patching
from .journal import journal, source

PhaseWriter = Callable[[bytes, bool], None]


def write_phase(name: bytes, ended: bool) -> None:
    """Write the beginning or the end of a phase."""
    if journal.on:
        journal.add("mark", n=name.decode(), e=int(ended), **({} if ended else {"at": source.line()}))


_write: PhaseWriter = write_phase
"""Writes a mark."""
_emit: PhaseWriter = write_phase
"""Runs at a mark: writes it, and calls the watchers of the phase, if there are any."""
_watchers: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {}
"""Phase -> the functions to call before it begins and after it has ended."""


def write_with(write: PhaseWriter) -> None:
    """Use another function to write marks: the compiled recorder's takes a third of the time."""
    global _write, _emit
    _write = write
    _emit = _write_watched_phase if _watchers else write


def watch_phases(names: Iterable[str], begin: Callable[[str], None], end: Callable[[str], None]) -> None:
    """Call `begin` with the name of a phase before it begins, and `end` after it has ended."""
    _watchers.update(dict.fromkeys(names, (begin, end)))
    write_with(_write)


def begin_phase(name: str, **facts: Any) -> None:
    """Write the beginning of a phase, with additional facts."""
    _watchers.get(name, (patching.do_nothing, patching.do_nothing))[0](name)
    journal.add("mark", n=name, e=0, at=source.line(), **facts)


def end_phase(name: str) -> None:
    """Write the end of a phase that `begin_phase` has begun."""
    journal.add("mark", n=name, e=1)
    _watchers.get(name, (patching.do_nothing, patching.do_nothing))[1](name)


def _write_watched_phase(name: bytes, ended: bool) -> None:
    phase = name.decode()
    begin, end = _watchers.get(phase, (patching.do_nothing, patching.do_nothing))
    if not ended:
        begin(phase)
    _write(name, ended)
    if ended:
        end(phase)


def wrap_phase(name: bytes, function: patching.Function) -> patching.Function:
    """Return a function that marks the beginning and the end of each call of `function`."""

    @patching.wraps_function(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        _emit(name, False)
        try:
            with patching.unseen:
                return function(*arguments, **named)
        finally:
            _emit(name, True)

    return wrapper


def watch_training_steps() -> None:
    """Record the phases of training steps in this process."""
    patching.patch_module("torch.distributed.distributed_c10d", _wrap_function("init_process_group"))
    patching.patch_module("torch.nn.modules.loss", _on_loss)
    patching.patch_module("torch.nn.modules.module", lambda one: patching.replace_methods(one.Module, *_ZERO_GRAD))
    patching.patch_module("torch.autograd", _wrap_function("backward"))  # Tensor.backward calls this one
    patching.patch_module("torch.optim.optimizer", _on_optimizer)


def _wrap_function(name: str) -> patching.Action:
    """Return an action that wraps a function of a module in marks."""
    return lambda module: patching.replace_function(module, name, partial(wrap_phase, name.encode()))


_ZERO_GRAD = ("zero_grad",), partial(wrap_phase, b"zero_grad")


def _on_loss(module: ModuleType) -> None:
    loss = module._Loss
    if "__call__" not in vars(loss):  # inherited from Module, whose other subclasses must not change
        loss.__call__ = patching.inline_for_compile(wrap_phase(b"loss", loss.__call__), loss.__call__)


def _on_optimizer(module: ModuleType) -> None:
    patching.replace_methods(module.Optimizer, *_ZERO_GRAD)
    hooks = (module.register_optimizer_step_pre_hook, False), (module.register_optimizer_step_post_hook, True)
    for register, ended in hooks:
        register(patching.inline_for_compile(lambda *_, ended=ended: _emit(b"step", ended), patching.do_nothing))
