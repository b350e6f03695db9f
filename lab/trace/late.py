"""Results that may be on record as they were later, when whoever got them could use and change them already.

The recorder says which calls these may be. One whose handle the script has is not, if its result was there before the
script's first wait after it was over, or if it never waited; what DDP and others in PyTorch do with handles of their
own is not on record.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from lab.trace.model import Call, Mark, RankTrace


def clear_late(rank: RankTrace) -> None:
    """Unset `Call.late` of every call whose result was seen in time nevertheless."""
    for call in rank.calls:
        if call.late and call.via == call.op:
            wait = wait_after(rank, call)
            call.late = wait is not None and wait.end is not None and (call.end or 0.0) > wait.end


def wait_after(rank: RankTrace, call: Call) -> Mark | None:
    """The first wait of a rank after a call of its began."""
    place = bisect_left(rank.waits, call.begin, key=attrgetter("begin"))
    return rank.waits[place] if place < len(rank.waits) else None
