"""The `mark` lines: when which phase of a training step begins and ends; beside them, what else a step is held up by.

The `cpu` lines say how long threads have run and waited for a core, as their kernel counts it: the thread that trains,
and the others of its process, which carry the bytes of its calls. The `gc` lines say when Python's garbage collector
held up all of them for a while.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from .journal import journal, source
from .patching import Function, inlined, nothing, replace, wraps

Mark = Callable[[bytes, bool], None]
_DENSE, _SPARSE = 16, 32
"""There is a `cpu` line after each of the first steps of an optimizer, then after every so many."""
_MOST_BYTES = 64
_LEAST_NS = 1_000_000
"""Shorter collections hold nobody up: there are thousands of them."""


def _python_mark(name: bytes, ended: bool) -> None:
    if journal.on:
        journal.add("mark", n=name.decode(), e=int(ended), **({} if ended else {"at": source.line()}))


_write: Mark = _python_mark
"""What writes a mark."""
_mark: Mark = _python_mark
"""What is done at a mark: mostly only that."""
_watchers: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {}
"""By phase: what is called before it begins, and after it has ended."""


def write_with(mark: Mark) -> None:
    """Have another function write the marks: the compiled recorder's takes a third of the time."""
    global _write, _mark
    _write = mark
    _mark = _watched_mark if _watchers else mark


def watch_phases(names: Iterable[str], begin: Callable[[str], None], end: Callable[[str], None]) -> None:
    """Have `begin` called with the name of a phase before it begins, and `end` after it has ended."""
    _watchers.update(dict.fromkeys(names, (begin, end)))
    write_with(_write)


def begin_phase(name: str, **facts: Any) -> None:
    """Write that a phase begins of which there is more to say."""
    _watchers.get(name, (nothing, nothing))[0](name)
    journal.add("mark", n=name, e=0, at=source.line(), **facts)


def end_phase(name: str) -> None:
    """Write that such a phase has ended."""
    journal.add("mark", n=name, e=1)
    _watchers.get(name, (nothing, nothing))[1](name)


def _watched_mark(name: bytes, ended: bool) -> None:
    phase = name.decode()
    begin, end = _watchers.get(phase, (nothing, nothing))
    if not ended:
        begin(phase)
    _write(name, ended)
    if ended:
        end(phase)


def marked(name: bytes, function: Function) -> Function:
    """A function that marks its beginning and its end."""

    @wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        _mark(name, False)
        try:
            return function(*arguments, **named)
        finally:
            _mark(name, True)

    return wrapper


def _on_distributed(module: ModuleType) -> None:
    mark = partial(marked, b"init_process_group")
    replace((module, sys.modules.get("torch.distributed")), "init_process_group", mark)


def _on_loss(module: ModuleType) -> None:
    loss = module._Loss
    if "__call__" not in vars(loss):  # it is inherited from Module: the loss gets one of its own
        loss.__call__ = inlined(marked(b"loss", loss.__call__), loss.__call__)


def _on_autograd(module: ModuleType) -> None:
    replace((module,), "backward", partial(marked, b"backward"))  # Tensor.backward calls this one


def _on_module(module: ModuleType) -> None:
    module.Module.zero_grad = marked(b"zero_grad", module.Module.zero_grad)


def _on_optimizer(module: ModuleType) -> None:
    module.Optimizer.zero_grad = marked(b"zero_grad", module.Optimizer.zero_grad)
    module.register_optimizer_step_pre_hook(inlined(lambda *_: _mark(b"step", False), nothing))
    module.register_optimizer_step_post_hook(inlined(_after_step, nothing))


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.distributed_c10d": _on_distributed,
    "torch.nn.modules.loss": _on_loss,
    "torch.nn.modules.module": _on_module,
    "torch.autograd": _on_autograd,
    "torch.optim.optimizer": _on_optimizer,
}
"""What is to be done to a module of torch when it has been imported."""
_steps = 0


def _after_step(*_: Any) -> None:
    global _steps
    _mark(b"step", True)
    _steps += 1
    if journal.on and (_steps <= _DENSE or _steps % _SPARSE == 0):
        try:
            here = str(threading.get_native_id())
            ran, queued = _read_times(here)
            others = [_read_times(thread) for thread in os.listdir("/proc/self/task") if thread != here]
        except (OSError, ValueError):  # the kernel does not count them, or a thread has just ended
            return
        beside, beside_queued = sum(one for one, _ in others), sum(one for _, one in others)
        journal.add("cpu", ran=ran, queued=queued, beside=beside, beside_queued=beside_queued)


def _read_times(thread: str) -> tuple[int, int]:
    """Nanoseconds that a thread ran, and that it was queued."""
    file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)  # `open` takes twice as long
    try:
        ran, queued = os.read(file, _MOST_BYTES).split()[:2]
    finally:
        os.close(file)
    return int(ran), int(queued)


_collection_began = 0


def watch_collections() -> None:
    """Write `gc` lines from now on."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def _on_collection(phase: str, facts: Mapping[str, Any]) -> None:
    global _collection_began
    if not journal.on:
        return
    now = time.monotonic_ns()
    if phase == "start":
        _collection_began = now
    elif _collection_began and now - _collection_began >= _LEAST_NS:
        journal.add("gc", t=now, took=now - _collection_began, gen=facts.get("generation"))
