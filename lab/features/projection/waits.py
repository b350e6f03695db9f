"""When a rank began to wait for each of its calls, as far as its trace tells: with that, work can be told from waiting.

It is `lab.trace.timing.blocked_spans`, and beyond it the waits for what was over already, which may hold a rank up in
another world; and a call of a backward pass that blocks (FSDP's, tensor parallel ones) is one that blocks.
"""

from __future__ import annotations

from bisect import bisect_right

from lab.trace.model import Call, Mark, RankTrace, calls_within
from lab.trace.timing import Span, blocked_spans, wait_for


def waits_of(rank: RankTrace) -> dict[int, Span]:
    """By index of the call: from when its rank waited for it, and until when; the same moment where it did not have to.

    Calls that nobody was seen to wait for are not there.
    """
    blocked = blocked_spans(rank)
    passes = [mark for mark in rank.marks if mark.name == "backward" and mark.end is not None]
    begins = [mark.begin for mark in passes]
    spans: dict[int, Span] = {}
    for call in rank.calls:
        if call.end is None:
            continue
        at = bisect_right(begins, call.begin) - 1
        within = passes[at] if at >= 0 and call.begin <= (passes[at].end or 0.0) else None
        if within is not None:
            spans[call.index] = _in_backward(rank, call, within, blocked)
        elif call.index in blocked:
            spans[call.index] = blocked[call.index]
        elif call.hands_out:
            wait = wait_for(call, rank)
            if wait is not None:
                spans[call.index] = (wait.begin, wait.begin)
    return spans


def _in_backward(rank: RankTrace, call: Call, within: Mark, blocked: dict[int, Span]) -> Span:
    beside = call.hands_out or call.bucket is not None
    if not beside:
        later = calls_within(rank.calls, call.begin, call.end or call.begin)
        beside = any(other.begin > call.begin for other in later)
    if beside:
        return blocked.get(call.index, (within.end or call.begin, within.end or call.begin))
    return call.begin, call.end or call.begin
