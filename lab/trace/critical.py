"""The critical path of a run: the one chain of own work and communication that its length is made of, without waiting.

From the end backwards: a rank that was held up by a call could go on when the call was done, and the call could begin
when the last rank that it needed had entered it. So the path goes through the call to that rank, and through what that
rank did before, until it was itself held up. Whatever else the ranks did ran beside it, or was waiting.

It begins where ranks last met to make groups, in init_process_group or new_group: who was late there is not on record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from lab.trace.model import Call, RankTrace, Trace
from lab.trace.steps import Step
from lab.trace.timing import Span, blocked_spans, ready_at, unseen_calls


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the path, which was one rank's."""

    rank: int
    begin: float
    """Seconds."""
    end: float
    call: Call | None
    """The call that it passed in; of a rank's own work, the call that followed; None: no call did."""
    within: bool
    """Whether it passed in the call: communication. Else the rank's own work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Pieces of the path that were of one kind."""

    rank: int | None
    """Whose own work it was; None: it was communication."""
    op: str
    """What was called, or what was called after the work; empty where nothing was."""
    source: str
    """The line of that call."""
    seconds: float
    share: float
    """Of the whole path."""


def critical_path(trace: Trace, steps: Mapping[tuple[int, int], Step]) -> list[Piece]:
    """The path in the order of time, with the step of each call by rank and index.

    Empty where it is not known: a rank has no whole trace, a call failed, or handles were waited for unseen.
    """
    ranks = trace.ranks
    if not ranks or len(ranks) < trace.world_size or not all(rank.recorded and rank.stopped for rank in ranks.values()):
        return []
    if any(call.error for rank in ranks.values() for call in rank.calls):
        return []
    held = {rank: _in_order(own.calls, blocked_spans(own)) for rank, own in ranks.items()}
    unseen = {rank: _unseen_waits(own, steps) for rank, own in ranks.items()}
    met = {rank: _meetings(own) for rank, own in ranks.items()}
    at = max(ranks, key=lambda rank: ranks[rank].last)
    until, following = ranks[at].last, None
    pieces: list[Piece] = []
    while True:
        spans, ready = held[at], max((end for end in met[at] if end <= until), default=ready_at(ranks[at]))
        while spans and spans[-1][1][1] > until:
            spans.pop()
        first = not spans or spans[-1][1][1] <= ready
        freed = min(ready, until) if first else spans[-1][1][1]
        if any(begin < until and end > freed for begin, end in unseen[at]):
            return []
        pieces.append(Piece(at, freed, until, following, within=False))
        if first:
            break
        call, _ = spans.pop()
        step = steps.get((at, call.index))
        latest = step.latest_of(call) if step is not None else call
        if latest is None:
            return []
        until = min(latest.begin, freed)
        pieces.append(Piece(at, until, freed, call, within=True))
        at, following = latest.rank, latest
    return [piece for piece in reversed(pieces) if piece.within or piece.end > piece.begin]


def from_new_group(path: Sequence[Piece], trace: Trace) -> bool:
    """Whether a path begins only after the last new_group, not where the ranks began."""
    return bool(path) and path[0].begin > ready_at(trace.ranks[path[0].rank])


def _meetings(rank: RankTrace) -> list[float]:
    """When the making of groups ended in which a rank may have waited for others."""
    ends = (mark.end for mark in rank.marks if mark.name in ("init_process_group", "new_group"))
    return [end for end in ends if end is not None]


def _in_order(calls: Sequence[Call], spans: Mapping[int, Span]) -> list[tuple[Call, Span]]:
    """Calls that held their rank up, in the order in which they let it go on."""
    held = [(call, spans[call.index]) for call in calls if call.index in spans]
    return sorted((one for one in held if one[1][1] > one[1][0]), key=lambda one: one[1][1])


def _unseen_waits(rank: RankTrace, steps: Mapping[tuple[int, int], Step]) -> list[Span]:
    """When a rank may have waited for others, or not."""
    calls = ((call, steps.get((rank.rank, call.index))) for call in unseen_calls(rank))
    return [(call.begin, call.end or 0.0) for call, step in calls if step is not None and step.needs(call)]


def parts_of(path: Sequence[Piece]) -> list[Part]:
    """What the path is made of, the longest first: own work by rank and what it led to, communication by call."""
    sums: dict[tuple[int | None, str, str], float] = defaultdict(float)
    for piece in path:
        call = piece.call
        what = (call.op, call.source) if call is not None else ("", "")
        whose = None if piece.within else piece.rank
        sums[whose, what[0], what[1]] += piece.end - piece.begin
    whole = sum(sums.values())
    ordered = sorted(sums.items(), key=itemgetter(1), reverse=True)
    return [
        Part(rank=rank, op=op, source=source, seconds=seconds, share=seconds / whole)
        for (rank, op, source), seconds in ordered
    ]
