"""Change a call of a recorded group before it is made; the recorder records the changed call."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....node.recorder.journal import journal, source
from ...faults.on_node.holds import wait_ahead
from .events import events, is_observing, perform_behavior, read_mutant
from .mutant import BEHAVIORS, Mutant

_BLOCKING = ("send", "recv")
_TAG_AT = 2
_kept: list[Any] = []
"""Handles that nobody waits for: they must outlive their calls."""


class _Call(NamedTuple):
    """A call before it is made."""

    op: str
    method: Callable[..., Any]
    group: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    facts: dict[str, Any]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    at: dict[str, str]

    @property
    def options(self) -> Any:
        """The options object, the last argument."""
        return (*self.arguments, *self.named.values())[-1]

    @property
    def blocks(self) -> bool:
        """Whether the script continues only after the call."""
        return self.facts.get("async") is False or self.at.get("via") in _BLOCKING

    def make(self, group: Any = None) -> Any:
        """Make the call; return its handle."""
        return self.method(self.group if group is None else group, *self.arguments, **self.named)

    def complete(self) -> Any:
        """Make the call; a blocking one is over when this returns."""
        work = self.make()
        if self.blocks and work is not None:
            wait_ahead(work)
        return work


def mutate_calls(kind: Any) -> None:
    """Replace the methods of a class of recorded groups, if this process has a mutant or observes."""
    if read_mutant() is None and not is_observing():
        return
    from ....node.recorder.python_group import OPERATIONS

    _watch_location()
    plain = {name: getattr(kind, name) for methods in OPERATIONS.values() for name in methods if hasattr(kind, name)}
    for op, methods in OPERATIONS.items():
        for name in methods:
            if name in plain:
                setattr(kind, name, _mutated(op, plain[name], plain))


def _watch_location() -> None:
    """Let a postponed call have the line at which the script made it."""
    locate = source.locate
    source.locate = lambda: vars(events.local).get("location") or locate()  # type: ignore[method-assign]


def _mutated(op: str, method: Any, plain: dict[str, Any]) -> Any:
    from ....node.recorder.python_group import describe_call

    @functools.wraps(method)
    def wrapper(group: Any, *arguments: Any, **named: Any) -> Any:
        if not journal.on:
            return method(group, *arguments, **named)
        try:
            facts, inputs, outputs = describe_call(op, (*arguments, *named.values()))
        except Exception:  # unexpected arguments: the recorder reports them
            return method(group, *arguments, **named)
        outputs = inputs if outputs is None else outputs
        call = _Call(op, method, group, arguments, named, facts, inputs or (), outputs or (), source.locate())
        tensors = [*call.inputs, *call.outputs]
        dtype = str(tensors[0].dtype).partition(".")[2] if tensors else ""
        shown = {"size": group.size(), "dtype": dtype, "elements": tensors[0].numel() if tensors else 0}
        mutant = events.reach(op, g=group.group_name, **shown, **facts, **call.at)
        postponed: _Call | None = vars(events.local).pop("postponed", None)
        if mutant is not None and mutant.kind in BEHAVIORS:
            if not vars(events.local).pop("behaved", False):
                perform_behavior(mutant)
            mutant = None
        work = call.complete() if postponed else call.make() if mutant is None else _change(mutant, call, plain)
        if postponed is not None:
            events.local.location = postponed.at
            try:
                wait_ahead(postponed.make())
            finally:
                del events.local.location
        return work

    return wrapper


def _finished(tensors: Sequence[Any]) -> Any:
    """Return the handle of a call that is over, and was never made."""
    import torch
    from torch._C import _distributed_c10d as c10d

    future: Any = torch.futures.Future()
    future.set_result(list(tensors))
    return c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def _change(mutant: Mutant, call: _Call, plain: dict[str, Any]) -> Any:
    """Make the changed call, if any; return the handle for the script."""
    if (change := _CHANGES.get(mutant.kind)) is not None:
        return change(mutant, call)
    if mutant.kind == "op":
        return _make_other(mutant.to, call, plain)
    if mutant.kind == "root":
        call.options.rootRank = int(mutant.to)
    elif mutant.kind == "reduction":
        from torch.distributed import ReduceOp

        call.options.reduceOp = getattr(ReduceOp, mutant.to)
    elif mutant.kind in ("peer", "tag"):
        position = 1 if mutant.kind == "peer" else _TAG_AT
        arguments = (*call.arguments[:position], int(mutant.to), *call.arguments[position + 1 :])
        return call._replace(arguments=arguments).make()
    elif mutant.kind == "nan":
        call.inputs[0].data.reshape(-1)[:1] = float("nan")
    return call.make()


def _skip(_: Mutant, call: _Call) -> Any:
    return _finished(call.outputs)


def _repeat(_: Mutant, call: _Call) -> Any:
    if (work := call.make()) is not None:
        wait_ahead(work)
    return call.make()


def _swap(_: Mutant, call: _Call) -> Any:
    events.local.postponed = call
    return _finished(call.outputs)


def _move(mutant: Mutant, call: _Call) -> Any:
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    return call.make(next((group for group, name in world.pg_names.items() if name == mutant.to), call.group))


def _make_other(name: str, call: _Call, plain: dict[str, Any]) -> Any:
    """Call another operation with the call's own tensor."""
    import torch
    from torch._C import _distributed_c10d as c10d

    tensors = [next(iter((*call.inputs, *call.outputs)), torch.zeros(1))]
    kinds = {
        "all_reduce": ("allreduce", c10d.AllreduceOptions),
        "broadcast": ("broadcast", c10d.BroadcastOptions),
        "reduce": ("reduce", c10d.ReduceOptions),
        "barrier": ("barrier", c10d.BarrierOptions),
    }
    method, kind = kinds[name]
    options: Any = kind()
    options.asyncOp = bool(call.facts.get("async"))
    return plain[method](call.group, *(() if name == "barrier" else (tensors,)), options)


def _replace_tensor(mutant: Mutant, call: _Call) -> Any:
    """Make the call with another tensor, and copy what it receives into the script's own."""
    import torch

    old = next(iter((*call.inputs, *call.outputs)))
    flat = old.detach().reshape(-1)
    if mutant.kind == "dtype":
        new = old.detach().to(getattr(torch, mutant.to))
    elif mutant.to == "more":
        new = torch.cat([flat, flat[-1:] if len(flat) else flat.new_zeros(1)])
    else:
        new = flat[:-1].clone()

    def replaced(value: Any) -> Any:
        if value is old:
            return new
        return [replaced(one) for one in value] if isinstance(value, (list, tuple)) else value

    arguments = tuple(replaced(one) for one in call.arguments)
    work = call._replace(arguments=arguments, named={name: replaced(one) for name, one in call.named.items()}).make()

    def copy_back(*_: Any) -> None:
        with torch.no_grad():
            count = min(new.numel(), old.numel())
            old.data.view(-1)[:count] = new.reshape(-1)[:count].to(old.dtype)

    if any(old is one for one in call.outputs) and old.is_contiguous():
        if call.blocks and work is not None:
            wait_ahead(work)
        if call.blocks or work is None:
            copy_back()
        else:
            events.local.after = lambda handle: _Copied(handle, copy_back)
    return work


def _split(_: Mutant, call: _Call) -> Any:
    sizes = list(call.arguments[3] or [call.inputs[0].shape[0] // call.group.size()] * call.group.size())
    source_index = next(index for index, size in enumerate(sizes) if size)
    sizes[source_index] -= 1
    sizes[(source_index + 1) % len(sizes)] += 1
    return call._replace(arguments=(*call.arguments[:3], sizes, *call.arguments[4:])).make()


def _change_in_flight(_: Mutant, call: _Call) -> Any:
    def after(work: Any) -> Any:
        call.inputs[0].add_(1)
        return work

    events.local.after = after
    return call.make()


def _never_wait(_: Mutant, call: _Call) -> Any:
    def after(work: Any) -> Any:
        _kept.append(work)
        return _Unwaited(work)

    events.local.after = after
    return call.make()


class _Handle:
    """A handle in place of another one."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


class _Copied(_Handle):
    """A handle that copies what its call received."""

    def __init__(self, work: Any, copy_back: Callable[[], None]) -> None:
        super().__init__(work)
        self._copy_back = copy_back

    def wait(self, *limits: Any) -> Any:
        done = self._work.wait(*limits)
        self._copy_back()
        return done


class _Unwaited(_Handle):
    """A handle whose wait does nothing."""

    def wait(self, *_: Any) -> bool:
        return True

    is_completed = is_success = wait


_CHANGES: dict[str, Callable[[Mutant, _Call], Any]] = {
    "skip": _skip,
    "repeat": _repeat,
    "swap": _swap,
    "group": _move,
    "shape": _replace_tensor,
    "dtype": _replace_tensor,
    "split": _split,
    "change": _change_in_flight,
    "unwaited": _never_wait,
}
