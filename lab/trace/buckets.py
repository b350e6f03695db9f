"""Which all_reduce of DistributedDataParallel carries which bucket."""

from __future__ import annotations

from bisect import bisect_right

from lab.trace.model import Buckets, RankTrace


def assign_buckets(rank: RankTrace) -> None:
    """Set `Call.bucket` and `Call.parameters` of every reduction that a backward pass issued for a DDP module.

    DDP reduces its buckets in their order, so the n-th reduction of a backward pass on the module's group that has as
    many elements as the next bucket is that bucket's. Where a communication hook sends something else, nothing is
    assigned.
    """
    if not rank.buckets:
        return
    due: dict[int, int] = {}
    backward = -1
    passes = [mark.begin for mark in rank.marks if mark.name == "backward"]
    for call in rank.calls:
        if call.phase != "backward" or not call.operation.synchronises:
            continue
        number = bisect_right(passes, call.begin)
        if number != backward:
            backward, due = number, {}
        for layout in _layouts(rank, call.group, call.begin):
            position = due.get(layout.module, 0)
            if (
                position < len(layout.sizes)
                and call.inputs
                and sum(b.count for b in call.inputs) == layout.sizes[position]
            ):
                call.bucket, call.parameters = position, layout.buckets[position]
                due[layout.module] = position + 1
                break


def _layouts(rank: RankTrace, group: str, time: float) -> list[Buckets]:
    """The layout of each module on this group as it was at that time."""
    latest: dict[int, Buckets] = {}
    for layout in rank.buckets:
        if layout.group == group and layout.time <= time:
            latest[layout.module] = layout
    return list(latest.values())
