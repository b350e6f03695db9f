"""The `mark` lines: when which phase of a training step begins and ends."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .holds import PHASE, holds
from .journal import journal
from .share import share
from .source import source

Function = Callable[..., Any]
_UNSEEN = os.path.join(os.path.dirname(__file__), "importlib_bootstrap.py")


def _python_mark(name: bytes, ended: bool) -> None:
    if journal.on:
        place = {} if ended else source.place()
        journal.add("mark", n=name.decode(), e=int(ended), **({"at": place["at"]} if place else {}))


_mark: Callable[[bytes, bool], None] = _python_mark


def use_compiled(mark: Callable[[bytes, bool], None]) -> None:
    """Have the compiled recorder write the marks; it takes a third of the time."""
    global _mark
    _mark = mark
    hold()


def hold() -> None:
    """Have marks hold whoever comes to a phase that a trigger watches."""
    global _mark
    watched = holds.points(PHASE)
    if watched:
        _mark = _holding(_mark, {name.encode(): name for name in watched})


def _holding(plain: Callable[[bytes, bool], None], watched: dict[bytes, str]) -> Callable[[bytes, bool], None]:
    begun: dict[str, list[int]] = {name: [] for name in watched.values()}

    def mark(name: bytes, ended: bool) -> None:
        phase = watched.get(name)
        if phase is None:
            plain(name, ended)
        elif ended:
            plain(name, True)
            holds.end_phase(phase, begun[phase].pop() if begun[phase] else 0)
        else:
            begun[phase].append(holds.begin_phase(phase))
            plain(name, False)

    return mark


def unseen(wrapper: Function) -> Function:
    """Have warnings pass over a wrapper of the recorder, so that they point at the line of the script.

    Python counts the frames of its own import system out, which it knows by two words in the name of their file.
    """
    function: Any = wrapper
    function.__code__ = function.__code__.replace(co_filename=_UNSEEN)
    return wrapper


def marked(name: bytes, function: Function) -> Function:
    """A function that marks its beginning and its end."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        _mark(name, False)
        try:
            return function(*arguments, **named)
        finally:
            _mark(name, True)

    return unseen(wrapper)


def inlined(wrapper: Function, function: Function) -> Function:
    """Have torch.compile put what `function` does in the place of `wrapper`.

    Other marked functions end a graph and are called as they are. Nearly all of them end one without the recorder, too;
    and where one does, torch 2.13 loses the `self` of a method that has this.
    """
    wrapper._torchdynamo_inline = function  # type: ignore[attr-defined]
    return wrapper


def nothing(*_: Any) -> None:
    """What the mark of a step is to torch.compile."""


def replace(modules: Iterable[ModuleType | None], name: str, make: Callable[[Function], Function]) -> None:
    """Put another function in the place of one, in all modules that have it by this name."""
    present = [module for module in modules if module is not None and hasattr(module, name)]
    if present:
        old = getattr(present[0], name)
        new = make(old)
        for module in present:
            if getattr(module, name) is old:
                setattr(module, name, new)


def _on_distributed(module: ModuleType) -> None:
    mark = functools.partial(marked, b"init_process_group")
    replace((module, sys.modules.get("torch.distributed")), "init_process_group", mark)


def _on_loss(module: ModuleType) -> None:
    loss = module._Loss
    if "__call__" not in vars(loss):  # it is inherited from Module: the loss gets one of its own
        loss.__call__ = inlined(marked(b"loss", loss.__call__), loss.__call__)


def _on_autograd(module: ModuleType) -> None:
    replace((module,), "backward", functools.partial(marked, b"backward"))  # Tensor.backward calls this one


def _on_module(module: ModuleType) -> None:
    module.Module.zero_grad = marked(b"zero_grad", module.Module.zero_grad)


def _on_optimizer(module: ModuleType) -> None:
    module.Optimizer.zero_grad = marked(b"zero_grad", module.Optimizer.zero_grad)
    module.register_optimizer_step_pre_hook(inlined(lambda *_: _mark(b"step", False), nothing))
    module.register_optimizer_step_post_hook(inlined(_after_step, nothing))


def _after_step(*_: Any) -> None:
    _mark(b"step", True)
    share.after_step()


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.distributed_c10d": _on_distributed,
    "torch.nn.modules.loss": _on_loss,
    "torch.nn.modules.module": _on_module,
    "torch.autograd": _on_autograd,
    "torch.optim.optimizer": _on_optimizer,
}
"""What is to be done to a module of torch when it has been imported."""
