"""The `mark` lines: when which phase of a training step begins and ends."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .journal import journal
from .source import source

_now = time.monotonic_ns
Function = Callable[..., Any]
Mark = Callable[[bytes, bool], None]
"""Takes the name of a phase, and whether it ended."""


def python_mark(name: bytes, ended: bool) -> None:
    """That of the Python recorder."""
    if journal.on:
        if ended:
            journal.put(b'{"k":"mark","t":%d,"n":"%b","e":1}\n' % (_now(), name))
        else:
            if journal.later:
                journal.catch_up()
            journal.put(b'{"k":"mark","t":%d,"n":"%b","e":0%b}\n' % (_now(), name, source.place(2)[0]))


_mark: Mark | None = None
_waiting: list[Callable[[Mark], None]] = []


def use(mark: Mark) -> None:
    """Have this one write the marks, wherever somebody waits for it and from now on."""
    global _mark
    _mark = mark
    for action in _waiting:
        action(mark)
    _waiting.clear()


def when_known(action: Callable[[Mark], None]) -> None:
    """Call `action` with what writes the marks, as soon as that is known: when torch.distributed has been imported."""
    if _mark is None:
        _waiting.append(action)
    else:
        action(_mark)


def marked(mark: Mark, name: str, function: Function) -> Function:
    """A function that marks its beginning and its end."""
    encoded = name.encode()

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        mark(encoded, False)
        try:
            return function(*arguments, **named)
        finally:
            mark(encoded, True)

    return wrapper


def _inlined(wrapper: Function, function: Function) -> Function:
    """Have torch.compile put what `function` does in the place of `wrapper`.

    Other marked functions it calls as they are, with the marks: they break its graph without the recorder, too.
    """
    wrapper._torchdynamo_inline = function  # type: ignore[attr-defined]
    return wrapper


def replace(modules: Iterable[ModuleType | None], name: str, make: Callable[[Function], Function]) -> None:
    """Put another function in the place of one, in all modules that have it by this name."""
    present = [module for module in modules if module is not None and hasattr(module, name)]
    if present:
        old = getattr(present[0], name)
        new = make(old)
        for module in present:
            if getattr(module, name) is old:
                setattr(module, name, new)


def _mark_method(mark: Mark, kind: type, method: str) -> None:
    setattr(kind, method, marked(mark, method, getattr(kind, method)))


def _on_distributed(module: ModuleType, mark: Mark) -> None:
    for name in ("init_process_group", "destroy_process_group"):
        replace((module, sys.modules.get("torch.distributed")), name, functools.partial(marked, mark, name))


def _on_loss(module: ModuleType, mark: Mark) -> None:
    loss = module._Loss
    if "__call__" not in vars(loss):  # it is inherited from Module: the loss gets one of its own
        loss.__call__ = _inlined(marked(mark, "loss", loss.__call__), loss.__call__)


def _on_autograd(module: ModuleType, mark: Mark) -> None:
    replace((module,), "backward", functools.partial(marked, mark, "backward"))  # Tensor.backward calls this one


def _on_module(module: ModuleType, mark: Mark) -> None:
    _mark_method(mark, module.Module, "zero_grad")


def _on_optimizer(module: ModuleType, mark: Mark) -> None:
    _mark_method(mark, module.Optimizer, "zero_grad")
    module.register_optimizer_step_pre_hook(_inlined(lambda *_: mark(b"step", False), _nothing))
    module.register_optimizer_step_post_hook(_inlined(lambda *_: mark(b"step", True), _nothing))


def _nothing(*_: Any) -> None:
    """What a mark is to torch.compile."""


def _on_ddp(module: ModuleType, mark: Mark) -> None:
    kind = module.DistributedDataParallel
    kind.__init__ = marked(mark, "DDP()", kind.__init__)
    _mark_method(mark, kind, "forward")


PATCHES: dict[str, Callable[[ModuleType, Mark], None]] = {
    "torch.distributed.distributed_c10d": _on_distributed,
    "torch.nn.modules.loss": _on_loss,
    "torch.nn.modules.module": _on_module,
    "torch.autograd": _on_autograd,
    "torch.optim.optimizer": _on_optimizer,
    "torch.nn.parallel.distributed": _on_ddp,
}
"""What is to be done to a module of torch when it has been imported."""
