"""Measure where the time of each rank went, and the critical path of a run."""

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
"""Begin and end, in seconds."""


class TimeShare(Frozen):
    """Where the time of a rank went, in seconds."""

    rank: int
    total: float
    """From the end of init_process_group, or its first line, to its last line."""
    own: float
    """Outside of calls: the rank's own work."""
    waiting: float
    """Inside calls, before all ranks that the call needs had entered."""
    communicating: float
    """Inside calls, the rest of the time."""
    unknown: float
    """While a call was in flight whose handle has no recorded wait: own work or waiting."""


def blocked_spans(rank: RankTrace) -> dict[int, Span]:
    """Return when each call blocked its rank, by index of the call.

    - A call without a handle blocks the rank from begin to end. So do calls in DDP's construction and forward.
    - Reductions in a backward pass run in parallel until the last of them is issued; backward waits for the rest.
    - A call with a handle blocks the rank from the begin of the wait in which it ended.
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
    """Return whether the script got a handle; calls in DDP's construction and forward block the rank."""
    return call.has_handle and not call.via.startswith("DistributedDataParallel")


def wait_for(call: Call, rank: RankTrace) -> Phase | None:
    """Return the first recorded wait of the script that ended no earlier than a call; None if there is none."""
    position = bisect_left(rank.waits, call.end or 0.0, key=lambda wait: wait.end or inf)
    return rank.waits[position] if position < len(rank.waits) else None


def waiting_span(step: Step, call: Call, blocked: Span) -> Span:
    """Return the part of a call's span in which its rank waited for others."""
    latest = step.latest_of(call)
    until = blocked[1] if latest is None else min(max(latest.begin, blocked[0]), blocked[1])
    return blocked[0], until


def unseen_calls(rank: RankTrace) -> list[Call]:
    """Return calls with handles but no recorded wait: it is unknown whether they blocked their rank."""
    over = (call for call in rank.calls if call.end is not None and call.phase != "backward")
    return [call for call in over if _has_script_handle(call) and wait_for(call, rank) is None]


def ready_at(rank: RankTrace) -> float:
    """Return when a rank's own time begins: at the end of init_process_group, or at its first line."""
    ready = [phase.end for phase in rank.phases if phase.name == "init_process_group" and phase.end is not None]
    return min(ready) if ready else rank.first


def share_of(rank: RankTrace, steps: Mapping[tuple[int, int], Step]) -> tuple[TimeShare, float]:
    """Return where a rank's time went, and how long operations were in flight while it did something else.

    The second value is in seconds and no part of the total. `steps` has the step of each call, by rank and index.
    """
    spans = blocked_spans(rank)
    blocking = ((call, steps.get((rank.rank, call.index))) for call in rank.calls if call.index in spans)
    waiting = covered_s(waiting_span(step, call, spans[call.index]) for call, step in blocking if step is not None)
    total, blocked = max(0.0, rank.last - ready_at(rank)), covered_s(spans.values())
    flying = covered_s((call.begin, call.end) for call in rank.calls if call.end is not None)
    unseen = [(call.begin, call.end or 0.0) for call in unseen_calls(rank)]
    unknown, communicating = covered_s([*spans.values(), *unseen]) - blocked, max(0.0, blocked - waiting)
    own, others = max(0.0, total - waiting - communicating - unknown), {"communicating": communicating}
    share = TimeShare(rank=rank.rank, total=total, own=own, waiting=waiting, unknown=unknown, **others)
    return share, max(0.0, flying - blocked - unknown)


def covered_s(spans: Iterable[Span]) -> float:
    """Return the seconds that spans cover together; overlaps count once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the critical path on one rank."""

    rank: int
    begin: float
    """Seconds."""
    end: float
    call: Call | None
    """The call that it is part of; for own work, the call that followed; None if no call followed."""
    within: bool
    """Whether it is communication inside the call; otherwise it is the rank's own work."""


class PathPart(Frozen):
    """Pieces of the path of the same kind."""

    rank: int | None
    """The rank of own work; None for communication."""
    op: str
    """The operation, or the operation that followed own work; empty if there was none."""
    source: str
    """The line of that call."""
    seconds: float
    share: float
    """Part of the whole path."""


def critical_path(trace: Trace, steps: Mapping[tuple[int, int], Step]) -> list[Piece]:
    """Return the critical path in the order of time; `steps` has the step of each call, by rank and index.

    It is empty if unknown: the trace of a rank is incomplete, a call failed, or waits for handles were not recorded.
    """
    ranks = trace.ranks
    if not ranks or len(ranks) < trace.world_size or not all(rank.recorded and rank.stopped for rank in ranks.values()):
        return []
    if any(call.error for rank in ranks.values() for call in rank.calls):
        return []
    held = {rank: _in_order(own.calls, blocked_spans(own)) for rank, own in ranks.items()}
    unseen = {rank: _unseen_waits(own, steps) for rank, own in ranks.items()}
    makings = ("init_process_group", "new_group")  # in these a rank may have waited for others
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
    """Return the critical path of a run; empty if it is unknown, or if ranks were stepped."""
    return [] if evidence.untimed == "stepped" else critical_path(evidence.trace, evidence.step_of)


def from_new_group(path: Sequence[Piece], trace: Trace) -> bool:
    """Return whether a path begins only after the last new_group, not where the ranks began."""
    return bool(path) and path[0].begin > ready_at(trace.ranks[path[0].rank])


def _in_order(calls: Sequence[Call], spans: Mapping[int, Span]) -> list[tuple[Call, Span]]:
    """Return calls that blocked their rank, sorted by the end of the block."""
    held = [(call, spans[call.index]) for call in calls if call.index in spans]
    return sorted((one for one in held if one[1][1] > one[1][0]), key=lambda one: one[1][1])


def _unseen_waits(rank: RankTrace, steps: Mapping[tuple[int, int], Step]) -> list[Span]:
    """Return when a rank may have waited for others without a recorded wait."""
    calls = ((call, steps.get((rank.rank, call.index))) for call in unseen_calls(rank))
    return [(call.begin, call.end or 0.0) for call, step in calls if step is not None and step.needs(call)]


def parts_of(path: Sequence[Piece]) -> list[PathPart]:
    """Return the parts of the path, the longest first: own work by rank and next call, communication by call."""
    sums: dict[tuple[int | None, str, str], float] = defaultdict(float)
    for piece in path:
        what = (piece.call.op, piece.call.source) if piece.call is not None else ("", "")
        key = (None if piece.within else piece.rank, *what)
        sums[key] += piece.end - piece.begin
    whole, known = sum(sums.values()), sums.items()
    parts = (PathPart(rank=rank, op=op, source=at, seconds=s, share=s / whole) for (rank, op, at), s in known)
    return sorted(parts, key=attrgetter("seconds"), reverse=True)
