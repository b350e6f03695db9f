"""Which all_reduce of DistributedDataParallel carries which bucket."""

from __future__ import annotations

from bisect import bisect_right

from lab.trace.model import RankTrace


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
        known = [layout for layout in rank.buckets if layout.group == call.group and layout.time <= call.begin]
        size = sum(buffer.count for buffer in call.inputs)
        for layout in {layout.module: layout for layout in known}.values():  # of each module the latest
            position = due.get(layout.module, 0)
            if call.inputs and layout.sizes[position : position + 1] == (size,):
                call.bucket, call.parameters = position, layout.buckets[position]
                due[layout.module] = position + 1
                break
