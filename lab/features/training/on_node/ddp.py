"""The `ddp`, `module`, and `hook` lines: buckets of DDP modules, the module of a forward, the hook that reduces."""

from __future__ import annotations

import itertools
import time
import weakref
from contextlib import suppress
from types import ModuleType
from typing import Any

from ....node.recorder import phases
from ....node.recorder.journal import journal, source
from ....node.recorder.patching import patch_module, unseen, wraps_function
from . import replicas

_numbers = itertools.count(1)
_OF_OTHER_TORCH = ((None, None),)


class _Module:
    """The recorded state of a DDP module."""

    has_hook = False
    """Whether its hook is recorded."""
    is_awaited = True
    """Whether its buckets may still be rebuilt, or were rebuilt and are not recorded yet."""
    rebuilt_at: int | None = None
    """Time at which the recorder noticed the rebuilding."""

    def __init__(self, number: int) -> None:
        self.number = number


_modules: weakref.WeakKeyDictionary[Any, _Module] = weakref.WeakKeyDictionary()
_described: list[int] = []
"""The numbers of all modules so far."""


def record_training() -> None:
    """Record modules of DDP and steps of optimizers in this process."""
    patch_module("torch.nn.parallel.distributed", _watch)
    patch_module("torch.optim.optimizer", replicas.watch_optimizers)


def finish_training() -> None:
    """Write the rest at the end of the default group, or of the script.

    It consists of buckets that the last forward rebuilt, and of norms after the last steps.
    """
    for module, known in list(_modules.items()):
        if known.is_awaited and known.rebuilt_at is not None:
            with suppress(AttributeError, RuntimeError):
                module.logger.set_runtime_stats_and_log()
                _write_rebuilt(module, known)
    replicas.write_last_norms()


def _watch(module: ModuleType) -> None:
    """Record the modules of `torch.nn.parallel.distributed` from their construction on."""
    kind = module.DistributedDataParallel
    kind.__init__ = _watched_init(kind.__init__, module.dist)
    kind.forward = _watched_forward(kind.forward)


def _watched_init(construct: Any, distributed: Any) -> Any:
    wrapped = phases.wrap_phase(b"DDP()", construct)

    @wraps_function(construct)
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

        distributed._compute_bucket_assignment_by_size = compute_and_keep
        try:
            wrapped(self, *arguments, **named)
        except BaseException:
            _describe_failed(self)
            raise
        finally:
            distributed._compute_bucket_assignment_by_size = compute
        if computed:
            _describe(self, *computed)

    return __init__


def _watched_forward(forward: Any) -> Any:
    wrapped = phases.wrap_phase(b"forward", forward)

    @wraps_function(forward)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        known = _modules.get(self)
        try:
            if journal.on:
                _announce(self, known)
            with unseen:
                return wrapped(self, *arguments, **named)
        finally:
            # DDP returns its rebuilt buckets in the forward after the one that rebuilt them.
            if known is not None and known.is_awaited and getattr(self, "_has_rebuilt_buckets", False):
                if known.rebuilt_at is not None:
                    _write_rebuilt(self, known)
                known.rebuilt_at = known.rebuilt_at or time.monotonic_ns()

    return wrapper


def _announce(module: Any, known: _Module | None) -> None:
    """Write the module of the forward that begins, if there are several, and whether and how it exchanges gradients."""
    synchronised = getattr(module, "require_backward_grad_sync", True)
    if len(_described) > 1 or not synchronised:
        journal.add("module", d=known.number if known else 0, sync=int(synchronised))
    hooks = getattr(module, "_comm_hooks", _OF_OTHER_TORCH)
    if hooks and known is not None and not known.has_hook:
        known.has_hook = True
        names = (getattr(hooks[-1][0], name, "") for name in ("__module__", "__qualname__"))
        journal.add("hook", d=known.number, name=".".join(map(str, names)))


def _describe(module: Any, parameters: list[Any], result: Any) -> None:
    with suppress(AttributeError, TypeError, IndexError):  # another torch: its calls are recorded, its buckets are not
        number = next(_numbers)
        buckets = [list(bucket) for bucket in reversed(result[0])]  # the order in which DDP passes them to its reducer
        _write_parameters(module, number, parameters, buckets)
        _modules[module] = _Module(number)
        _described.append(number)
        replicas.add_module(module, number, parameters)


def _describe_failed(module: Any) -> None:
    """Write the parameters of a module whose construction failed, perhaps because parameters of ranks differ."""
    with suppress(Exception):  # it failed before it had parameters, or in another version of torch
        _write_parameters(module, next(_numbers), module._build_params_for_reducer()[0], [])


def _write_parameters(module: Any, number: int, parameters: list[Any], buckets: list[list[int]]) -> None:
    names, described = {id(parameter): name for name, parameter in module.module.named_parameters()}, []
    for i, p in enumerate(parameters):
        described.append([names.get(id(p), f"parameter {i}"), str(p.dtype).partition(".")[2], list(p.shape)])
    group, at = module.process_group.group_name, source.line()
    journal.add("ddp", d=number, g=group, at=at, params=described, buckets=buckets, rebuilt=False)


def _write_rebuilt(module: Any, known: _Module) -> None:
    known.is_awaited = False
    with suppress(AttributeError, ValueError, RuntimeError):  # another version of torch
        text = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
        buckets = [[int(index) for index in bucket.split()] for bucket in text.split(",")]
        group = module.process_group.group_name
        known.is_awaited = not any(buckets)
        if any(buckets):
            journal.add("ddp", t=known.rebuilt_at, d=known.number, g=group, buckets=buckets, rebuilt=True)
