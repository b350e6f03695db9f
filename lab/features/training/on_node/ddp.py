"""The `ddp`, `module` and `hook` lines: what is in which bucket of a DDP module, whose forward begins, who reduces."""

from __future__ import annotations

import itertools
import time
import weakref
from types import ModuleType
from typing import Any

from ....node.recorder import marks
from ....node.recorder.journal import journal, source
from ....node.recorder.patching import patch, wraps
from . import replicas

_numbers = itertools.count(1)
_awaited: dict[int, tuple[weakref.ref[Any], int, int | None]] = {}
"""By the address of a module whose rebuilt buckets are not on record: its number, and when they were seen to have been
rebuilt."""

_described: list[int] = []
"""The numbers of all modules that there were."""
_hooked: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules whose hook is on record."""
_OF_OTHER_TORCH = ((None, None),)
_constructed: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The number of each module."""


def record() -> None:
    """Have modules of DDP and steps of optimizers recorded in this process."""
    patch("torch.nn.parallel.distributed", _watch)
    patch("torch.optim.optimizer", replicas.watch)


def _watch(module: ModuleType) -> None:
    """Have the modules of `torch.nn.parallel.distributed` recorded from their construction on."""
    kind = module.DistributedDataParallel
    kind.__init__ = _watched_init(kind.__init__, module.dist)
    kind.forward = _watched_forward(kind.forward)


def _watched_init(construct: Any, distributed: ModuleType) -> Any:
    marked = marks.marked(b"DDP()", construct)

    @wraps(construct)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 - PyTorch's name
        if not journal.on:
            construct(self, *arguments, **named)
            return
        computed: list[Any] = []
        compute = distributed._compute_bucket_assignment_by_size

        def compute_and_keep(parameters: Any, *rest: Any, **options: Any) -> Any:
            result = compute(parameters, *rest, **options)
            computed[:] = [parameters, result]
            return result

        distributed._compute_bucket_assignment_by_size = compute_and_keep  # type: ignore[attr-defined]
        try:
            marked(self, *arguments, **named)
        except BaseException:
            _describe_failed(self)
            raise
        finally:
            distributed._compute_bucket_assignment_by_size = compute  # type: ignore[attr-defined]
        if computed:
            _describe(self, *computed)

    return __init__


def _watched_forward(forward: Any) -> Any:
    marked = marks.marked(b"forward", forward)

    @wraps(forward)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            if journal.on:
                _announce(self)
            return marked(self, *arguments, **named)
        finally:
            if id(self) in _awaited:
                _look_for_rebuilt(self)

    return wrapper


def _announce(module: Any) -> None:
    """Say whose forward begins, where there are several modules, and whether and by what gradients are exchanged."""
    synchronised = getattr(module, "require_backward_grad_sync", True)
    if len(_described) > 1 or not synchronised:
        journal.add("module", d=_constructed.get(module, 0), sync=int(synchronised))
    hooks = getattr(module, "_comm_hooks", _OF_OTHER_TORCH)
    if hooks and module in _constructed and module not in _hooked:
        _hooked.add(module)
        hook = hooks[-1][0]
        names = (getattr(hook, name, "") for name in ("__module__", "__qualname__"))
        journal.add("hook", d=_constructed[module], name=".".join(map(str, names)))


def _describe(module: Any, parameters: list[Any], result: Any) -> None:
    try:
        number = next(_numbers)
        buckets = [list(bucket) for bucket in reversed(result[0])]  # as DDP hands them to its reducer
        _write_parameters(module, number, parameters, buckets)
        _constructed[module] = number
        _described.append(number)
        replicas.add(module, number, parameters)
        _awaited[id(module)] = (weakref.ref(module), number, None)
    except (AttributeError, TypeError, IndexError):
        pass  # another version of torch: its calls are on record, its buckets are not


def _describe_failed(module: Any) -> None:
    """Write the parameters of a module whose construction failed, perhaps because other ranks have other ones."""
    try:
        _write_parameters(module, next(_numbers), module._build_params_for_reducer()[0], [])
    except Exception:  # it failed before it had parameters, or in another version of torch
        return


def _write_parameters(module: Any, number: int, parameters: list[Any], buckets: list[list[int]]) -> None:
    names = {id(parameter): name for name, parameter in module.module.named_parameters()}
    described = [
        [names.get(id(p), f"parameter {i}"), str(p.dtype).partition(".")[2], list(p.shape)]
        for i, p in enumerate(parameters)
    ]
    group, at = module.process_group.group_name, source.line()
    journal.add("ddp", d=number, g=group, at=at, params=described, buckets=buckets, rebuilt=False)


def _look_for_rebuilt(module: Any) -> None:
    """Write the rebuilt buckets once DDP tells them: in the forward pass after the one that rebuilt them."""
    if getattr(module, "_has_rebuilt_buckets", False):
        of, number, seen = _awaited[id(module)]
        if of() is not module:
            del _awaited[id(module)]  # it is gone, and this one has its address
        elif seen is None:
            _awaited[id(module)] = (of, number, time.monotonic_ns())
        else:
            _write_rebuilt(module, number, seen)


def _write_rebuilt(module: Any, number: int, seen: int) -> None:
    try:
        text = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
        buckets = [[int(index) for index in bucket.split()] for bucket in text.split(",")]
        if any(buckets):
            del _awaited[id(module)]
            group = module.process_group.group_name
            journal.add("ddp", t=seen, d=number, g=group, buckets=buckets, rebuilt=True)
    except (AttributeError, ValueError, RuntimeError):
        del _awaited[id(module)]  # another version of torch


def finish() -> None:
    """Write what is known at the end of the default group, or of the script.

    That is of buckets that were rebuilt in a last forward pass, and of norms after the last steps.
    """
    for of, number, seen in list(_awaited.values()):
        module = of()
        if seen is not None and module is not None:
            try:
                module.logger.set_runtime_stats_and_log()
            except (AttributeError, RuntimeError):
                continue
            _write_rebuilt(module, number, seen)
    replicas.finish()
