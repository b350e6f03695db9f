"""Who made the others wait, how often and how long; and where every rank's time went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter

from lab.trace.steps import Step
from lab.trace.timing import Share, blocked_spans, share_of, waiting_span
from lab.verdict.evidence import Evidence
from lab.verdict.finding import Finding
from lab.words import format_duration, name_ranks, plural

NOISE_S = 0.002
"""Waiting shorter than this says nothing: schedulers and clocks are no better."""
LEAST_STEPS = 3
"""The others must have waited for a rank in at least this many steps."""
LEAST_PART = 2 / 3
"""And in this part of the steps in which anybody waited, and for this part of the time."""
NOW_AND_THEN_STEPS = 5
"""Or, where it is late now and then only, in so many of them,"""
NOW_AND_THEN_PART = 3 / 4
"""and for this part of the time."""
LEAST_SHARE = 0.1
"""Even without its worst step, it has to cost each of the others this part of the time that the steps span."""
LEAST_S = 0.1
"""And at least this many seconds altogether."""
_MOST_SHARES = 4


def find_straggler(evidence: Evidence) -> list[Finding]:
    """The rank that the others waited for most of the time, if there is one."""
    costs: dict[int, list[float]] = defaultdict(list)
    lines: dict[int, Counter[str]] = defaultdict(Counter)
    spans = {rank: blocked_spans(trace) for rank, trace in evidence.trace.ranks.items()}
    meetings = [step for step in evidence.steps if not step.missing and not step.message and len(step.calls) > 1]
    meetings.sort(key=attrgetter("begin"))
    for step in meetings[1:]:  # at the first, ranks meet that began at different times
        pacer = step.late
        if pacer is None:
            continue
        early = [call for call in step.calls.values() if call is not pacer and call.index in spans[call.rank]]
        waits = [waiting_span(step, call, spans[call.rank][call.index]) for call in early]
        if any(end - begin >= NOISE_S for begin, end in waits):
            costs[pacer.rank].append(sum(end - begin for begin, end in waits))
            lines[pacer.rank][pacer.source] += 1
    if not costs:
        return []
    slow = max(costs, key=lambda rank: sum(costs[rank]))
    others = tuple(rank for rank in evidence.trace.ranks if rank != slow)
    each = sum(costs[slow]) / len(others)
    window = _window(meetings)
    waited_in = sum(map(len, costs.values()))
    often = len(costs[slow]) >= max(LEAST_STEPS, LEAST_PART * waited_in)
    part = sum(costs[slow]) / sum(map(sum, costs.values()))
    now_and_then = len(costs[slow]) >= NOW_AND_THEN_STEPS and part >= NOW_AND_THEN_PART
    again = (sum(costs[slow]) - max(costs[slow])) / len(others)  # without the one step that may have been an accident
    if not (((often and part >= LEAST_PART) or now_and_then) and again >= max(LEAST_S, LEAST_SHARE * window)):
        return []
    place = lines[slow].most_common(1)[0][0]
    turns = sum(mark.name == "step" for mark in evidence.trace.ranks[slow].marks)
    sentence = (
        f"Rank {slow} came last to {len(costs[slow])} of the {plural(waited_in, 'step')} in which anybody "
        f"waited, and cost {name_ranks(others)} {format_duration(each)}{' each' if len(others) > 1 else ''}, "
        f"{each / window:.0%} of the time"
    )
    if turns:
        sentence += f": {format_duration(each / turns)} in each of {plural(turns, 'training step')}"
    sentence += f". It entered them at {place}." if place else "."
    return [
        Finding(kind="straggler", sentence=sentence, ranks=(slow,), others=others, lines=(place,) if place else (),
                seconds=round(sum(costs[slow]), 6))
    ]  # fmt: skip


def _window(steps: Sequence[Step]) -> float:
    """Seconds from the end of the first of these steps to the end of the last."""
    ends = [call.end for step in steps for call in step.calls.values() if call.end is not None]
    first = steps[0].end if steps[0].end is not None else steps[0].begin
    return max(max(ends, default=0.0) - first, 1e-9)


def find_shares(evidence: Evidence) -> list[Finding]:
    """Where the time of the ranks went."""
    every = [share_of(rank, evidence.step_of) for rank in evidence.trace.ranks.values() if rank.calls]
    shares = [share for share in every if share.total > 0]
    if not shares:
        return []
    sentence = f"Where the time went: {'; '.join(map(_share, shares))}."
    if len(shares) > _MOST_SHARES:
        most = max(shares, key=lambda share: share.waiting)
        least = min(shares, key=lambda share: share.waiting)
        sentence = f"Most waiting: {_share(most)}; least: {_share(least)}."
    hidden = max(share.hidden for share in shares)
    if hidden > NOISE_S:
        sentence += f" Up to {format_duration(hidden)} of communication ran beside the ranks' own work."
    return [
        Finding(kind="time", sentence=sentence, others=tuple(share.rank for share in shares),
                seconds=round(max(share.waiting for share in shares), 6))
    ]  # fmt: skip


def _share(share: Share) -> str:
    parts = {"own work": share.own, "waiting": share.waiting, "communication": share.communicating}
    if share.unknown > NOISE_S:
        parts["not known"] = share.unknown
    told = ", ".join(f"{value / share.total:.0%} {name}" for name, value in parts.items())
    return f"rank {share.rank} {told} of {format_duration(share.total)}"
