"""How late ranks came to steps, how long the others waited for them there, and when a collector held them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from operator import attrgetter
from statistics import median

from lab.trace.model import Call, Trace
from lab.trace.steps import Step
from lab.trace.timing import Span, blocked_spans, length, waiting_span
from lab.words import format_duration

JUMP_S = 0.01
"""Who is late now and then is so by this much at least,"""
_TIMES = 5
"""and by so many times what is usual where another one comes last."""
_LEAST_JUMPS = 3
_LEAST_PART = 3 / 4
"""Of all that is as late, this part of the time is the rank's,"""
_MOST_CHANCE = 0.02
"""More likely than that it is chance that any rank has so many of such steps."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long others waited at a step for the one who came last."""

    call: Call
    """Of who came last."""
    waited: tuple[float, ...]
    """Seconds, of each of the others that the call held up."""
    first: bool
    """Whether the line of the call had not come before: what is made there at first use takes its time."""

    @property
    def total(self) -> float:
        """Seconds, of all others together."""
        return sum(self.waited)

    @property
    def longest(self) -> float:
        """Seconds, of the one that waited longest."""
        return max(self.waited, default=0.0)


def lateness_at(steps: Sequence[Step], trace: Trace) -> list[Lateness]:
    """Of each of these steps to which surely one rank came last, in their order."""
    spans = {rank: blocked_spans(ranks) for rank, ranks in trace.ranks.items()}
    found, lines = [], set[str]()
    for step in steps:
        pacer = step.late
        if pacer is not None:
            early = [call for call in step.calls.values() if call is not pacer and call.index in spans[call.rank]]
            waits = (waiting_span(step, call, spans[call.rank][call.index]) for call in early)
            found.append(Lateness(pacer, tuple(end - begin for begin, end in waits), pacer.source not in lines))
            lines.add(pacer.source)
    return found


@dataclass(frozen=True, slots=True)
class Jumps:
    """Steps to which one rank came far later than anybody does as a rule."""

    late: Sequence[Lateness] = ()
    usual_s: float = 0.0
    """How late others are as a rule, seconds."""
    by_chance: bool = True
    """Whether it may be chance that they are this rank's."""


def jumps_of(rank: int, late: Sequence[Lateness], ranks: int) -> Jumps:
    """Those of a rank, of so many ranks; none where they are few, or not most of what all others were as late."""
    again = [one for one in late if not one.first]
    usual_s = median([one.longest for one in again if one.call.rank != rank] or [0.0])
    jumps = [one for one in again if one.longest >= max(JUMP_S, _TIMES * usual_s)]
    mine = [one for one in jumps if one.call.rank == rank]
    if len(mine) < _LEAST_JUMPS or sum(one.total for one in mine) < _LEAST_PART * sum(one.total for one in jumps):
        return Jumps()
    return Jumps(mine, usual_s, _by_chance(len(mine), len(jumps), ranks) > _MOST_CHANCE)


def _by_chance(mine: int, every: int, ranks: int) -> float:
    """How likely it is that any rank has so many of all by chance, at most."""
    others = 1 - 1 / ranks
    return ranks * sum(comb(every, n) * (1 / ranks) ** n * others ** (every - n) for n in range(mine, every + 1))


def collected_in(late: Sequence[Lateness], trace: Trace) -> str:
    """That the garbage collector held a rank up for most of the time for which others waited, as a sentence."""
    held = [length(_common(one, trace.ranks[one.call.rank].collections)) for one in late]
    if sum(held) < sum(map(attrgetter("longest"), late)) / 2:
        return ""
    return f" Its garbage collector ran for {format_duration(sum(held))} of that, in {sum(map(bool, held))} of them."


def _common(one: Lateness, spans: Sequence[Span]) -> list[Span]:
    """What of these spans lies in the time for which others waited."""
    since, until = one.call.begin - one.longest, one.call.begin
    return [(max(begin, since), min(end, until)) for begin, end in spans if begin < until and end > since]
