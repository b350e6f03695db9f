"""Who made the others wait, how often and how long; and where every rank's time went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.lateness import Jumps, collected_in, jumps_of, lateness_at
from lab.trace.steps import Step
from lab.trace.timing import Share, share_of
from lab.words import format_duration, name_ranks, plural

NOISE_S = 0.002
"""Waiting shorter than this says nothing: schedulers and clocks are no better."""
LEAST_STEPS = 3
"""The others must have waited for a rank in at least this many steps."""
LEAST_PART = 2 / 3
"""And in this part of the steps in which anybody waited, and for this part of the time."""
MOST_PART = 3 / 4
"""Where it is far later than usual at less than half of all steps, and these make up so much: now and then."""
LEAST_SHARE = 0.1
"""Even without its worst step, it has to cost each of the others this part of the time that the steps span,"""
NOW_AND_THEN_SHARE = 0.05
"""or this part, where it is late now and then and nobody else is so late,"""
GREAT_SHARE = 1 / 3
"""or this part, where its being late now and then might be chance by the number of these steps alone,"""
LEAST_S = 0.1
"""and at least this many seconds altogether."""
_MOST_SHARES = 4


def find_straggler(evidence: Evidence) -> list[Finding]:
    """The rank that the others waited for most of the time, or for long now and then, if there is one."""
    meetings = [step for step in evidence.steps if not step.missing and not step.message and len(step.calls) > 1]
    meetings.sort(key=attrgetter("begin"))
    late = lateness_at(meetings[1:], evidence.trace)  # at the first, ranks meet that began at different times
    noticed = [one for one in late if one.longest >= NOISE_S]
    if not noticed:
        return []
    costs: dict[int, float] = defaultdict(float)
    for one in noticed:
        costs[one.call.rank] += one.total
    slow = max(costs, key=costs.__getitem__)
    others = tuple(rank for rank in evidence.trace.ranks if rank != slow)
    window, mine = _window(meetings), [one for one in noticed if one.call.rank == slow]
    jumps = jumps_of(slow, late, len(evidence.trace.ranks))
    seldom = 2 * len(jumps.late) < len(meetings) and sum(one.total for one in jumps.late) >= MOST_PART * costs[slow]
    often = len(mine) >= max(LEAST_STEPS, LEAST_PART * len(noticed)) and costs[slow] >= LEAST_PART * sum(costs.values())
    if often and not (seldom and jumps.late and not jumps.by_chance):
        how = f"came last to {len(mine)} of the {plural(len(noticed), 'step')} in which anybody waited, and"
        share = LEAST_SHARE
    else:
        mine, how = list(jumps.late), _late(jumps, len(meetings) - 1, seldom=seldom)
        share = GREAT_SHARE if jumps.by_chance else NOW_AND_THEN_SHARE
    each = sum(one.total for one in mine) / len(others)
    again = each - max((one.total for one in mine), default=0.0) / len(others)  # one step may have been an accident
    if again < max(LEAST_S, share * window):
        return []
    [(place, _)] = Counter(one.call.source for one in mine).most_common(1)
    turns = sum(mark.name == "step" for mark in evidence.trace.ranks[slow].marks)
    sentence = (
        f"Rank {slow} {how} cost {name_ranks(others)} {format_duration(each)}{' each' if len(others) > 1 else ''}, "
        f"{each / window:.0%} of the time"
    )
    if turns and mine != jumps.late:
        sentence += f": {format_duration(each / turns)} in each of {plural(turns, 'training step')}"
    sentence += f". It entered them at {place}." if place else "."
    sentence += collected_in(mine, evidence.trace)
    return [
        Finding(kind="straggler", sentence=sentence, ranks=(slow,), others=others, lines=(place,) if place else (),
                seconds=round(each * len(others), 6))
    ]  # fmt: skip


def _late(jumps: Jumps, steps: int, *, seldom: bool) -> str:
    """`was late now and then: by 34 ms to 61 ms at 8 of 60 steps, where 3 ms is usual, which`."""
    ends = (format_duration(pick((one.longest for one in jumps.late), default=0.0)) for pick in (min, max))
    usual = f", where {format_duration(jumps.usual_s)} is usual" if jumps.usual_s >= NOISE_S / 2 else ""
    by = f"by {' to '.join(dict.fromkeys(ends))} at {len(jumps.late)} of {plural(steps, 'step')}{usual}, which"
    return f"was late now and then: {by}" if seldom else f"was late {by}"


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
