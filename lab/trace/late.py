"""Results that may be on record as they were later, when whoever got them could use and change them already.

Of a call without a handle, the result is always seen in time. Of one with a handle, it is if it was there before the
first wait after the call was over, or if there was none; what DDP and others in PyTorch do with handles of their own is
not on record.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from lab.trace.model import Call, Mark, RankTrace


def mark_late(rank: RankTrace) -> None:
    """Set `Call.late` of every call whose result may have been seen too late."""
    for call in rank.calls:
        if call.hands_out:
            wait = wait_after(rank, call)
            in_time = call.via == call.op if wait is None else wait.end is None or (call.end or 0.0) <= wait.end
            call.late = not in_time


def wait_after(rank: RankTrace, call: Call) -> Mark | None:
    """The first wait of a rank after a call of its began."""
    place = bisect_left(rank.waits, call.begin, key=attrgetter("begin"))
    return rank.waits[place] if place < len(rank.waits) else None
