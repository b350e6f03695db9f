"""Where the time of every rank went, and the critical path of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from lab.diagnosis.evidence import Evidence
from lab.frozen import Frozen
from lab.trace.model import Call, Phase, RankTrace, Trace, calls_within
from lab.trace.steps import Step

Span = tuple[float, float]
"""Beginning and end, seconds."""


class TimeShare(Frozen):
    """Where the time of a rank went, seconds."""

    rank: int
    total: float
    """From the end of init_process_group, or its first line, to its last line."""
    own: float
    """Outside of calls: the rank's own work."""
    waiting: float
    """Inside calls, before everybody had entered whom the call needs."""
    communicating: float
    """Inside calls, for the rest of the time."""
    unknown: float
    """With calls in flight whose handles nobody was seen to wait for: own work or waiting."""


def blocked_spans(rank: RankTrace) -> dict[int, Span]:
    """By index of the call: when each call held its rank up.

    A call without a handle holds the rank up from its beginning to its end, and so do those of DDP's construction and
    forward. The reductions of a backward pass run beside it until the last of them has been issued; what is left of
    them then, backward waits for. A call with a handle holds the rank up from the beginning of the wait in which it
    ended.
    """
    spans = {}
    for call in rank.calls:
        if call.end is None or call.phase == "backward":
            continue
        if not _has_script_handle(call):
            spans[call.index] = (call.begin, call.end)
        elif (wait := wait_for(call, rank)) is not None and call.end > wait.begin:
            spans[call.index] = (wait.begin, call.end)
    for phase in rank.phases:
        if phase.name == "backward" and phase.end is not None:
            ours = [call for call in calls_within(rank.calls, phase.begin, phase.end) if call.end is not None]
            issued = max((call.begin for call in ours), default=0.0)
            for call in ours:
                spans[call.index] = (max(call.begin, issued), max(issued, min(call.end or issued, phase.end)))
    return spans


def _has_script_handle(call: Call) -> bool:
    """Whether the script got a handle; what DDP does in its construction and forward holds a rank up."""
    return call.has_handle and not call.via.startswith("DistributedDataParallel")


def wait_for(call: Call, rank: RankTrace) -> Phase | None:
    """The first wait of the script that was over when a call was, or after that; None where none is on record."""
    position = bisect_left(rank.waits, call.end or 0.0, key=lambda wait: wait.end or inf)
    return rank.waits[position] if position < len(rank.waits) else None


def waiting_span(step: Step, call: Call, blocked: Span) -> Span:
    """The part of a call's span in which its rank waited for others."""
    latest = step.latest_of(call)
    until = blocked[1] if latest is None else min(max(latest.begin, blocked[0]), blocked[1])
    return blocked[0], until


def unseen_calls(rank: RankTrace) -> list[Call]:
    """Calls with handles that nobody was seen to wait for: whether they held their rank up is not known."""
    over = (call for call in rank.calls if call.end is not None and call.phase != "backward")
    return [call for call in over if _has_script_handle(call) and wait_for(call, rank) is None]


def ready_at(rank: RankTrace) -> float:
    """When a rank's own time begins: at the end of init_process_group, or at its first line."""
    ready = [phase.end for phase in rank.phases if phase.name == "init_process_group" and phase.end is not None]
    return min(ready) if ready else rank.first


def share_of(rank: RankTrace, steps: Mapping[tuple[int, int], Step]) -> tuple[TimeShare, float]:
    """Where a rank's time went, with the step of each call by rank and index.

    Also for how many seconds operations were in flight while the rank did something else; not part of the total.
    """
    spans = blocked_spans(rank)
    blocking = ((call, steps.get((rank.rank, call.index))) for call in rank.calls if call.index in spans)
    waiting = covered_s(waiting_span(step, call, spans[call.index]) for call, step in blocking if step is not None)
    total, blocked = max(0.0, rank.last - ready_at(rank)), covered_s(spans.values())
    flying = covered_s((call.begin, call.end) for call in rank.calls if call.end is not None)
    unseen = [(call.begin, call.end or 0.0) for call in unseen_calls(rank)]
    unknown, communicating = covered_s([*spans.values(), *unseen]) - blocked, max(0.0, blocked - waiting)
    share = TimeShare(
        rank=rank.rank,
        total=total,
        own=max(0.0, total - waiting - communicating - unknown),
        waiting=waiting,
        communicating=communicating,
        unknown=unknown,
    )
    return share, max(0.0, flying - blocked - unknown)


def covered_s(spans: Iterable[Span]) -> float:
    """Seconds that spans cover together; where they overlap, once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


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


class PathPart(Frozen):
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
    makings = ("init_process_group", "new_group")  # there a rank may have waited for others
    met = {rank: [phase.end for phase in own.phases if phase.name in makings] for rank, own in ranks.items()}
    at = max(ranks, key=lambda rank: ranks[rank].last)
    until, following = ranks[at].last, None
    pieces: list[Piece] = []
    while True:
        ends = [end for end in met[at] if end is not None and end <= until]
        spans, ready = held[at], max(ends, default=ready_at(ranks[at]))
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


def critical_path_of(evidence: Evidence) -> list[Piece]:
    """The path of a run whose ranks were not held before each call; empty where that is not known."""
    return [] if evidence.untimed == "stepped" else critical_path(evidence.trace, evidence.step_of)


def from_new_group(path: Sequence[Piece], trace: Trace) -> bool:
    """Whether a path begins only after the last new_group, not where the ranks began."""
    return bool(path) and path[0].begin > ready_at(trace.ranks[path[0].rank])


def _in_order(calls: Sequence[Call], spans: Mapping[int, Span]) -> list[tuple[Call, Span]]:
    """Calls that held their rank up, in the order in which they let it go on."""
    held = [(call, spans[call.index]) for call in calls if call.index in spans]
    return sorted((one for one in held if one[1][1] > one[1][0]), key=lambda one: one[1][1])


def _unseen_waits(rank: RankTrace, steps: Mapping[tuple[int, int], Step]) -> list[Span]:
    """When a rank may have waited for others, or not."""
    calls = ((call, steps.get((rank.rank, call.index))) for call in unseen_calls(rank))
    return [(call.begin, call.end or 0.0) for call, step in calls if step is not None and step.needs(call)]


def parts_of(path: Sequence[Piece]) -> list[PathPart]:
    """What the path is made of, the longest first: own work by rank and what it led to, communication by call."""
    sums: dict[tuple[int | None, str, str], float] = defaultdict(float)
    for piece in path:
        what = (piece.call.op, piece.call.source) if piece.call is not None else ("", "")
        key = (None if piece.within else piece.rank, *what)
        sums[key] += piece.end - piece.begin
    whole, known = sum(sums.values()), sums.items()
    parts = (PathPart(rank=rank, op=op, source=at, seconds=s, share=s / whole) for (rank, op, at), s in known)
    return sorted(parts, key=attrgetter("seconds"), reverse=True)
