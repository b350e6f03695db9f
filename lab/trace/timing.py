"""Where the time of every rank went: its own work, waiting for others, communicating.

`docs/explain.md` defines the three; the code keeps to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from lab.trace.model import Call, Mark, RankTrace, calls_within
from lab.trace.steps import Step

Span = tuple[float, float]
"""Beginning and end, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Where one rank's time went, in seconds."""

    rank: int
    total: float
    """From the end of init_process_group, or its first line, to its last line."""
    waiting: float
    """Inside calls, before everybody had entered whom the call needs."""
    communicating: float
    """Inside calls, for the rest of the time."""
    unknown: float
    """With calls in flight whose handles nobody was seen to wait for: own work or waiting."""
    hidden: float
    """Operations in flight while the rank did something else; not part of the total."""

    @property
    def own(self) -> float:
        """Outside of calls: the rank's own work."""
        return max(0.0, self.total - self.waiting - self.communicating - self.unknown)


def blocked_spans(rank: RankTrace) -> dict[int, Span]:
    """By index of the call: when each call held its rank up.

    A call without a handle holds the rank up from its beginning to its end, and so do those of DDP's construction and
    forward. The reductions of a backward pass run beside it until the last of them has been issued; what is left of
    them then, backward waits for. A call with a handle holds the rank up from the beginning of the wait in which it
    ended.
    """
    spans = {}
    for call in rank.calls:
        at_once = not call.hands_out or call.via.startswith("DistributedDataParallel")
        if at_once and call.end is not None and call.phase != "backward":
            spans[call.index] = (call.begin, call.end)
    for call in _with_handles(rank):
        wait = wait_for(call, rank)
        if wait is not None and call.end is not None and call.end > wait.begin:
            spans[call.index] = (wait.begin, call.end)
    for mark in rank.marks:
        if mark.name != "backward" or mark.end is None:
            continue
        ours = [call for call in calls_within(rank.calls, mark.begin, mark.end) if call.end is not None]
        issued = max((call.begin for call in ours), default=0.0)
        for call in ours:
            spans[call.index] = (max(call.begin, issued), max(issued, min(call.end or issued, mark.end)))
    return spans


def _with_handles(rank: RankTrace) -> list[Call]:
    """Calls that gave the script a handle, and that are over."""
    return [
        call
        for call in rank.calls
        if call.hands_out
        and call.end is not None
        and call.phase != "backward"
        and not call.via.startswith("DistributedDataParallel")
    ]


def wait_for(call: Call, rank: RankTrace) -> Mark | None:
    """The first wait of the script that was over when a call was, or after that; None where none is on record."""
    place = bisect_left(rank.waits, call.end or 0.0, key=lambda wait: wait.end or inf)
    return rank.waits[place] if place < len(rank.waits) else None


def waiting_span(step: Step, call: Call, blocked: Span) -> Span:
    """The part of a call's span in which its rank waited for others."""
    latest = step.latest_of(call)
    until = blocked[1] if latest is None else min(max(latest.begin, blocked[0]), blocked[1])
    return blocked[0], until


def unseen_calls(rank: RankTrace) -> list[Call]:
    """Calls with handles that nobody was seen to wait for: whether they held their rank up is not known."""
    return [call for call in _with_handles(rank) if wait_for(call, rank) is None]


def ready_at(rank: RankTrace) -> float:
    """When a rank's own time begins: at the end of init_process_group, or at its first line."""
    ready = [mark.end for mark in rank.marks if mark.name == "init_process_group" and mark.end is not None]
    return min(ready) if ready else rank.first


def share_of(rank: RankTrace, steps: dict[tuple[int, int], Step]) -> Share:
    """Where a rank's time went, with the step of each call by rank and index."""
    spans = blocked_spans(rank)
    blocking = ((call, steps.get((rank.rank, call.index))) for call in rank.calls if call.index in spans)
    waiting = [waiting_span(step, call, spans[call.index]) for call, step in blocking if step is not None]
    total = max(0.0, rank.last - ready_at(rank))
    waited, blocked = length(waiting), length(spans.values())
    flying = length((call.begin, call.end) for call in rank.calls if call.end is not None)
    unseen = [(call.begin, call.end or 0.0) for call in unseen_calls(rank)]
    unknown = length([*spans.values(), *unseen]) - blocked
    return Share(
        rank=rank.rank,
        total=total,
        waiting=waited,
        communicating=max(0.0, blocked - waited),
        unknown=unknown,
        hidden=max(0.0, flying - blocked - unknown),
    )


def length(spans: Iterable[Span]) -> float:
    """Seconds that spans cover together; where they overlap, once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total
