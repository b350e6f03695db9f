"""The events of a process that a mutant can change: calls, phases of training steps, batches, the rendezvous.

Each event counts by name. The mutant of this process acts at the n-th event of its name. A process that observes writes
a `mutable` line for each event instead, so that a mutant is drawn from what happens.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from ....node.recorder import phases
from ....node.recorder.journal import journal, source
from ....node.recorder.patching import call_instead, do_nothing, patch_module, replace_function, replace_methods
from ...faults.on_node.holds import hang_thread
from .mutant import BEHAVIORS, CALLS, OBSERVE, VARIABLE, Mutant, parse_mutant

MESSAGE = "changed on purpose"
_MOST = 5000
"""Most `mutable` lines of a process."""
_FOR_GOOD_S = 30 * 86400.0
_PHASES = ("loss", "backward", "zero_grad", "step")
FUNCTIONS = {**{name: name for name in CALLS}, "isend": "send", "irecv": "recv"}
"""Function of torch.distributed -> the operation that it calls."""


class Events:
    """The events of this process, and its mutant."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._matching = 0
        self.local = threading.local()
        """`behaved`: the behavior before the call that begins is over; `after`: what happens to its handle."""

    def reach(self, target: str, **facts: Any) -> Mutant | None:
        """Count an event; return the mutant if it acts now."""
        self._counts[target] += 1
        if (mutant := read_mutant()) is None:
            if sum(self._counts.values()) <= _MOST and is_observing():
                journal.add("mutable", n=target, nth=self._counts[target], who=find_rank(), **facts)
            return None
        if not self._matches(mutant, target, str(facts.get("at", ""))):
            return None
        self._matching += 1
        if mutant.nth not in (0, self._matching):
            return None
        journal.add("mutated")
        return mutant

    def is_next(self, target: str, at: str) -> Mutant | None:
        """Return the mutant if it will act at the next event of this name."""
        if (mutant := read_mutant()) is None or not self._matches(mutant, target, at):
            return None
        return mutant if mutant.nth in (0, self._matching + 1) else None

    def _matches(self, mutant: Mutant, target: str, at: str) -> bool:
        is_meant = target == mutant.target and (not mutant.at or mutant.at == at)
        return is_meant and (not mutant.ranks or find_rank() in mutant.ranks)


events = Events()
"""The events of this process."""


@cache
def read_mutant() -> Mutant | None:
    """Return the mutant of this process; None if it has none."""
    text = os.environ.get(VARIABLE, "")
    return parse_mutant(text) if text not in ("", OBSERVE) else None


def is_observing() -> bool:
    """Return whether this process writes what a mutant could change."""
    return os.environ.get(VARIABLE) == OBSERVE


def refuse_compiled(_: Any) -> str:
    """Return why the compiled recorder cannot be used; empty if this process has no mutant."""
    return "a mutant changes calls, for which Python has to record them" if os.environ.get(VARIABLE) else ""


def find_rank() -> int:
    """Return the rank of this process; -1 if it has none yet."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    group = module._world.default_pg if module is not None else None
    return int(group.rank()) if group is not None else int(os.environ.get("RANK", "-1"))


def perform_behavior(mutant: Mutant) -> None:
    """Do what the mutant does before an event, if it is of such a kind.

    Raises:
        RuntimeError: the mutant raises it.
        SystemExit: the mutant exits.
    """
    if mutant.kind == "raise":
        raise RuntimeError(MESSAGE)
    if mutant.kind == "exit" and threading.current_thread() is threading.main_thread():
        raise SystemExit(int(mutant.to))
    if mutant.kind == "exit":  # in another thread, SystemExit ends only that
        os._exit(int(mutant.to))
    if mutant.kind == "abort":
        os.abort()
    elif mutant.kind == "segfault":
        ctypes.string_at(0)
    elif mutant.kind == "hang":
        while True:
            time.sleep(1)
    elif mutant.kind == "hang_gil":
        hang_thread(_FOR_GOOD_S, with_lock=True)
    elif mutant.kind == "sleep":
        time.sleep(float(mutant.to))


def watch_process() -> None:
    """Watch the functions and classes whose events a mutant can change."""
    if not os.environ.get(VARIABLE):
        return
    phases.watch_phases(_PHASES, _begin_phase, do_nothing)  # mutants act before a phase
    patch_module("torch.distributed.distributed_c10d", _watch_functions)
    patch_module("torch.optim.optimizer", _watch_optimizers)
    patch_module("torch.nn.parallel.distributed", _watch_ddp)
    patch_module("torch.utils.data.dataloader", _watch_loader)
    patch_module("torch.utils.data.distributed", _watch_sampler)


def _begin_phase(name: str) -> None:
    # `_before_step` knows the optimizer
    if name != "step" and (mutant := events.reach(name, at=source.line())) is not None:
        perform_behavior(mutant)


# -- functions of torch.distributed


def _watch_functions(module: ModuleType) -> None:
    for name, op in FUNCTIONS.items():
        replace_function(module, name, _around_call(module, op))
    replace_function(module, "init_process_group", call_instead(_meet))


def _around_call(module: ModuleType, op: str) -> Any:
    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        if sys._getframe(2).f_code.co_filename.startswith(_torch_folder()):  # PyTorch's own call
            return function(*arguments, **named)
        mutant = events.is_next(op, source.line())
        if mutant is not None and mutant.kind in BEHAVIORS and _is_member(module, function, arguments, named):
            events.local.behaved = True
            perform_behavior(mutant)
        work = function(*arguments, **named)
        after: Callable[[Any], Any] | None = vars(events.local).pop("after", None)
        return work if after is None or work is None else after(work)

    return call_instead(call)


def _is_member(module: Any, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        group = inspect.signature(function).bind(*arguments, **named).arguments.get("group")
    except TypeError:  # PyTorch refuses the arguments
        return False
    return not module._rank_not_in_group(group)


@cache
def _torch_folder() -> str:
    return os.path.join(os.path.dirname(sys.modules["torch"].__file__ or "/"), "")


def _meet(init: Any, *arguments: Any, **named: Any) -> Any:
    size = named.get("world_size", -1)
    size = size if size > 0 else int(os.environ.get("WORLD_SIZE", "0"))
    if (mutant := events.reach("init_process_group", at=source.line(), size=size)) is None:
        return init(*arguments, **named)
    before = dict(os.environ)
    if mutant.kind == "world":
        os.environ["WORLD_SIZE"] = mutant.to
        named.update({"world_size": int(mutant.to)} if named.get("world_size", -1) > 0 else {})
    elif mutant.kind == "address":
        os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", "29500")) + 1)
    try:
        return init(*arguments, **named)
    finally:
        os.environ.update({name: before[name] for name in ("WORLD_SIZE", "MASTER_PORT") if name in before})


# -- parts of training


def _watch_optimizers(module: Any) -> None:
    module.register_optimizer_step_pre_hook(_before_step)
    module.register_optimizer_step_post_hook(_after_step)


def _before_step(optimizer: Any, *_: Any) -> None:
    if (mutant := events.reach("step", at=source.line())) is None:
        return
    perform_behavior(mutant)
    if mutant.kind == "lr":
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * float(mutant.to)
    elif mutant.kind == "skip":
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        events.local.gradients = [(parameter, parameter.grad) for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None


def _after_step(*_: Any) -> None:
    for parameter, gradient in vars(events.local).pop("gradients", ()):
        parameter.grad = gradient


def _watch_ddp(module: Any) -> None:
    changed: list[Any] = []

    def call(method: Any, ddp: Any, *arguments: Any, **named: Any) -> Any:
        mutant = events.reach("forward", at=source.line())
        while changed:
            changed.pop().require_backward_grad_sync = True
        if mutant is not None:
            perform_behavior(mutant)
            if mutant.kind == "no_sync" and ddp.require_backward_grad_sync:
                ddp.require_backward_grad_sync = False
                changed.append(ddp)
        return method(ddp, *arguments, **named)

    replace_methods(module.DistributedDataParallel, ("__call__",), call_instead(call))


def _watch_loader(module: Any) -> None:
    def read_batch(method: Any, batches: Any) -> Any:
        dropped = events.is_next("batch", source.line())
        batch = method(batches)  # at the end, there is no batch
        if dropped is not None and dropped.kind == "drop":
            batch = method(batches)
        if (mutant := events.reach("batch", at=source.line())) is not None:
            perform_behavior(mutant)
        return batch

    replace_methods(module._BaseDataLoaderIter, ("__next__",), call_instead(read_batch))


def _watch_sampler(module: Any) -> None:
    def choose_samples(method: Any, sampler: Any) -> Any:
        rank, mutant = sampler.rank, events.reach("sampler", at=source.line())
        sampler.rank = 0 if mutant is not None else rank
        try:
            return method(sampler)
        finally:
            sampler.rank = rank

    replace_methods(module.DistributedSampler, ("__iter__",), call_instead(choose_samples))
