"""The `ddp` lines: which parameters of a DistributedDataParallel module are in which bucket."""

from __future__ import annotations

import functools
import itertools
import time
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from .journal import journal

_numbers = itertools.count(1)
_awaited: WeakKeyDictionary[Any, tuple[int, int | None]] = WeakKeyDictionary()
"""Modules whose rebuilt buckets are not on record: their number, and when they were seen to have been rebuilt."""


def watch(module: ModuleType) -> None:
    """Have the modules of `torch.nn.parallel.distributed` recorded from their construction on."""
    kind = module.DistributedDataParallel
    kind.__init__ = _watched_init(kind, kind.__init__, module.dist)


def _watched_init(kind: Any, construct: Any, distributed: ModuleType) -> Any:
    @functools.wraps(construct)
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
            construct(self, *arguments, **named)
        finally:
            distributed._compute_bucket_assignment_by_size = compute  # type: ignore[attr-defined]
        if computed and _describe(self, *computed):
            _watch_forward(kind)

    return __init__


def _watch_forward(kind: Any) -> None:
    """Look for rebuilt buckets after each forward pass, as long as those of any module are awaited."""
    forward = kind.forward
    if hasattr(forward, "watched"):
        return

    @functools.wraps(forward)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return forward(self, *arguments, **named)
        finally:
            if journal.on and self in _awaited:
                _look_for_rebuilt(self)
            if not _awaited and kind.forward is wrapper:
                kind.forward = forward

    wrapper.watched = True  # type: ignore[attr-defined]
    kind.forward = wrapper


def _describe(module: Any, parameters: list[Any], result: Any) -> bool:
    """Write the buckets; says whether that could be done."""
    try:
        names = {id(parameter): name for name, parameter in module.module.named_parameters()}
        number = next(_numbers)
        journal.add(
            "ddp",
            d=number,
            g=module.process_group.group_name,
            params=[
                [names.get(id(p), f"parameter {i}"), str(p.dtype).partition(".")[2], list(p.shape)]
                for i, p in enumerate(parameters)
            ],
            buckets=[list(bucket) for bucket in reversed(result[0])],  # as DDP hands them to its reducer
            rebuilt=False,
        )
        _awaited[module] = (number, None)
    except (AttributeError, TypeError, IndexError):
        return False  # another version of torch: its calls are on record, its buckets are not
    return True


def _look_for_rebuilt(module: Any) -> None:
    """Write the rebuilt buckets once DDP tells them: in the forward pass after the one that rebuilt them."""
    if getattr(module, "_has_rebuilt_buckets", False):
        number, seen = _awaited[module]
        if seen is None:
            _awaited[module] = (number, time.monotonic_ns())
        else:
            _write_rebuilt(module, number, seen)


def _write_rebuilt(module: Any, number: int, seen: int) -> None:
    try:
        text = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
        buckets = [[int(index) for index in bucket.split()] for bucket in text.split(",")]
        if any(buckets):
            del _awaited[module]
            group = module.process_group.group_name
            journal.add("ddp", t=seen, d=number, g=group, buckets=buckets, rebuilt=True)
    except (AttributeError, ValueError, RuntimeError):
        del _awaited[module]  # another version of torch


def finish() -> None:
    """Write what is known at the script's end of buckets that were rebuilt in a last forward pass."""
    for module, (number, seen) in list(_awaited.items()):
        if seen is not None:
            try:
                module.logger.set_runtime_stats_and_log()
            except (AttributeError, RuntimeError):
                continue
            _write_rebuilt(module, number, seen)
