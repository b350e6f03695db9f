"""Which all_reduce of DistributedDataParallel carries which bucket."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from lab.trace.model import Mark, RankTrace
from lab.trace.training import Buckets

_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
_DIVIDE_FIRST = {None, *(f"{_HOOKS}.{name}" for name in ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"))}
"""What divides gradients before it adds them up: DDP itself, and these hooks of PyTorch; of others nobody knows."""


def assign_buckets(rank: RankTrace) -> None:
    """Set `Call.bucket`, `module` and `parameters` of every reduction that a backward pass issued for a DDP module.

    DDP reduces its buckets in their order, so the n-th reduction of a backward pass on the module's group that has as
    many elements as the next bucket is that bucket's. Where a communication hook sends something else, or where it may
    be the bucket of several modules that went forward since the last backward, nothing is assigned.
    """
    if not rank.buckets:
        return
    divided = {module.number for module in rank.modules if module.hook in _DIVIDE_FIRST}
    due: dict[int, int] = {}
    went: set[int] = set()
    backward = -1
    begins = [mark.begin for mark in rank.marks if mark.name == "backward"]
    forwards = [mark for mark in rank.marks if mark.name == "forward"]
    for call in rank.calls:
        if call.phase != "backward" or not call.operation.synchronises:
            continue
        number = bisect_right(begins, call.begin)
        if number != backward:
            backward, due = number, {}
            since = begins[number - 2] if number > 1 else float("-inf")
            went = _went_forward(forwards, since, call.begin)
        known = [layout for layout in rank.buckets if layout.group == call.group and layout.time <= call.begin]
        size = sum(buffer.count for buffer in call.inputs)
        fitting = [
            layout
            for layout in {layout.module: layout for layout in known}.values()  # of each module the latest
            if call.inputs and layout.sizes[(at := due.get(layout.module, 0)) : at + 1] == (size,)
        ]
        layout = _one_of(fitting, went)
        if layout is not None:
            position = due.get(layout.module, 0)
            call.bucket, call.module, call.parameters = position, layout.module, layout.buckets[position]
            call.divided = layout.module in divided and call.reduce_op == "SUM"
            due[layout.module] = position + 1


def _went_forward(forwards: Sequence[Mark], since: float, until: float) -> set[int]:
    """The modules whose forward began between two moments, as far as that is known."""
    when = attrgetter("begin")
    ours = forwards[bisect_right(forwards, since, key=when) : bisect_right(forwards, until, key=when)]
    return {mark.module for mark in ours if mark.module is not None}


def _one_of(fitting: Sequence[Buckets], went: set[int]) -> Buckets | None:
    """The one layout, or of several the only one whose module went forward."""
    if len(fitting) > 1:
        fitting = [layout for layout in fitting if layout.module in went]
    return fitting[0] if len(fitting) == 1 else None
