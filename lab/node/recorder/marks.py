"""The `mark` lines: when which phase of a training step begins and ends."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol

from .journal import journal
from .source import source

_now = time.monotonic_ns
Function = Callable[..., Any]


class Writer(Protocol):
    """What writes marks: the compiled recorder, or the one below."""

    def mark(self, name: bytes, ended: bool, /, *rest: Any) -> None:
        """A phase begins or ends. What else is given does not matter."""

    def marked(self, name: bytes, function: Function, /) -> Function:
        """Something to be called in the place of a function, which marks its beginning and its end."""


class PythonWriter:
    """Writes marks for the Python recorder."""

    def mark(self, name: bytes, ended: bool, /, *rest: Any) -> None:
        """See `Writer.mark`."""
        if journal.on:
            if ended:
                journal.put(_ENDED % (_now(), name))
            else:
                if journal.later:
                    journal.catch_up()
                journal.put(_BEGUN % (_now(), name, source.place(2)[0]))

    def marked(self, name: bytes, function: Function, /) -> Function:
        """See `Writer.marked`."""

        def wrapper(*arguments: Any, **named: Any) -> Any:
            if journal.on:  # written out here: this is done ten times a step, and each frame costs
                if journal.later:
                    journal.catch_up()
                journal.put(_BEGUN % (_now(), name, source.place(2)[0]))
            try:
                return function(*arguments, **named)
            finally:
                if journal.on:
                    journal.put(_ENDED % (_now(), name))

        return wrapper


_BEGUN = b'{"k":"mark","t":%d,"n":"%b","e":0%b}\n'
_ENDED = b'{"k":"mark","t":%d,"n":"%b","e":1}\n'
_writer: Writer | None = None
_waiting: list[Callable[[Writer], None]] = []


def use(writer: Writer) -> None:
    """Have this one write the marks, from now on and wherever somebody waits for it."""
    global _writer
    _writer = writer
    for action in _waiting:
        action(writer)
    _waiting.clear()


def when_known(action: Callable[[Writer], None]) -> None:
    """Call `action` with what writes the marks, as soon as that is known: when torch.distributed has been imported."""
    if _writer is None:
        _waiting.append(action)
    else:
        action(_writer)


def marked(writer: Writer, name: str, function: Function) -> Function:
    """A function that marks its beginning and its end, and looks like the one that it calls."""
    return functools.update_wrapper(writer.marked(name.encode(), function), function)


def replace(modules: Iterable[ModuleType | None], name: str, make: Callable[[Function], Function]) -> None:
    """Put another function in the place of one, in all modules that have it by this name."""
    present = [module for module in modules if module is not None and hasattr(module, name)]
    if present:
        old = getattr(present[0], name)
        new = make(old)
        for module in present:
            if getattr(module, name) is old:
                setattr(module, name, new)


def _mark_method(writer: Writer, kind: type, method: str) -> None:
    setattr(kind, method, marked(writer, method, getattr(kind, method)))


def _on_distributed(module: ModuleType, writer: Writer) -> None:
    for name in ("init_process_group", "destroy_process_group"):
        replace((module, sys.modules.get("torch.distributed")), name, functools.partial(marked, writer, name))


def _on_loss(module: ModuleType, writer: Writer) -> None:
    loss = module._Loss
    if "__call__" not in vars(loss):  # it is inherited from Module: the loss gets one of its own
        loss.__call__ = marked(writer, "loss", loss.__call__)


def _on_autograd(module: ModuleType, writer: Writer) -> None:
    replace((module,), "backward", functools.partial(marked, writer, "backward"))  # Tensor.backward calls this one


def _on_module(module: ModuleType, writer: Writer) -> None:
    _mark_method(writer, module.Module, "zero_grad")


def _on_optimizer(module: ModuleType, writer: Writer) -> None:
    _mark_method(writer, module.Optimizer, "zero_grad")
    module.register_optimizer_step_pre_hook(functools.partial(writer.mark, b"step", False))
    module.register_optimizer_step_post_hook(functools.partial(writer.mark, b"step", True))


def _on_ddp(module: ModuleType, writer: Writer) -> None:
    kind = module.DistributedDataParallel
    kind.__init__ = marked(writer, "DDP()", kind.__init__)
    _mark_method(writer, kind, "forward")


PATCHES: dict[str, Callable[[ModuleType, Writer], None]] = {
    "torch.distributed.distributed_c10d": _on_distributed,
    "torch.nn.modules.loss": _on_loss,
    "torch.nn.modules.module": _on_module,
    "torch.autograd": _on_autograd,
    "torch.optim.optimizer": _on_optimizer,
    "torch.nn.parallel.distributed": _on_ddp,
}
"""What is to be done to a module of torch when it has been imported."""
