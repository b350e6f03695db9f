"""Find ranks that made the others wait, and how ranks and the run spent their time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from math import comb
from operator import attrgetter
from statistics import median, mode
from typing import Literal, NamedTuple

from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words
from lab.diagnosis.wording import render_lines
from lab.features.stragglers import timing
from lab.trace.model import Call, Trace
from lab.trace.steps import Step
from lab.words import format_bytes, format_count, format_duration, join_words, name_ranks

NOISE_S = 0.002
"""Shorter times mean nothing: schedulers and clocks are not more precise."""


class TimeKind(Kind):
    """The kinds of findings of this feature."""

    STRAGGLER = "straggler", 3
    TIME = "time", 5
    ACCOUNT = "account", 6, "usual"


class Straggler(Finding):
    """A rank that the others waited for."""

    kind: Kind = TimeKind.STRAGGLER
    each_s: float
    share: float
    seldom: bool = False
    often: bool = False
    """Whether it came last to most steps; otherwise it was far late to some."""
    last: int = 0
    """Number of steps to which it came last, or was late."""
    steps: int = 0
    least_s: float = 0.0
    most_s: float = 0.0
    usual_s: float = 0.0
    turns: int = 0
    """Number of training steps, if the time per step is meaningful."""
    collected_s: float = 0.0
    """Time in its garbage collector during the waits; 0 if that is not the reason."""
    collected_in: int = 0

    def render(self) -> Words:
        """Say how often it was late, by how much, and the cost."""
        if self.often:
            how = f"entered last in {self.last} of the {format_count(self.steps, 'step')} in which any rank waited, and"
        else:
            ends = dict.fromkeys(map(format_duration, (self.least_s, self.most_s)))
            usual = f" (usually {format_duration(self.usual_s)})" if self.usual_s >= NOISE_S / 2 else ""
            when = " now and then:" if self.seldom else ""
            steps = format_count(self.steps, "step")
            how = f"was late{when} by {' to '.join(ends)} at {self.last} of {steps}{usual}, which"
        took = f"{format_duration(self.each_s)}{' each' if len(self.others) > 1 else ''}"
        cost = f"delayed {name_ranks(self.others)} by {took}, {self.share:.0%} of the time"
        turn = format_duration(self.each_s / max(1, self.turns))
        turns = f": {turn} in each of {format_count(self.turns, 'training step')}" if self.turns else ""
        ran = format_duration(self.collected_s)
        collected = f"Its garbage collector ran for {ran} of that, in {self.collected_in} of them."
        entered = f"It entered them at {self.lines[0]}." if self.lines else ""
        return f"rank {self.ranks[0]} {how} {cost}{turns}", entered, collected if self.collected_in else ""


class TimeShares(Finding):
    """How ranks spent their time."""

    kind: Kind = TimeKind.TIME
    shares: tuple[timing.TimeShare, ...]
    hidden_s: float = 0.0

    def render(self) -> Words:
        """Describe how each rank spent its time."""
        head = f"how each rank spent its time: {'; '.join(map(_share, self.shares))}"
        if len(self.shares) > _MOST_SHARES:
            most = max(self.shares, key=lambda share: share.waiting)
            least = min(self.shares, key=lambda share: share.waiting)
            head = f"most waiting: {_share(most)}; least: {_share(least)}"
        hidden = f"Up to {format_duration(self.hidden_s)} of communication ran during the ranks' own work."
        return head, hidden if self.hidden_s > NOISE_S else ""


class CriticalPath(Finding):
    """What determined the duration of a run."""

    kind: Kind = TimeKind.TIME
    total_s: float
    parts: tuple[timing.PathPart, ...]
    from_new_group: bool = False

    def render(self) -> Words:
        """Name its largest parts."""
        since = ", from the last new_group on" if self.from_new_group else ""
        parts = join_words(f"{part.share:.0%} was {describe_part(part)}" for part in self.parts)
        return f"the critical path{since}: of {format_duration(self.total_s)}, {parts}"


class Account(Finding):
    """Totals of the calls of ranks."""

    kind: Kind = TimeKind.ACCOUNT
    collectives: int = 0
    messages: int = 0
    input_bytes: int = field(default=0, metadata={"key": "brought_bytes"})
    timed: bool = True
    untimed: Literal["", "stepped", "dumped"] = ""

    def render(self) -> Words:
        """Say how many calls there were, how long they took, and how much they moved."""
        called = {"collective": self.collectives, "message": self.messages}
        if not (counts := [format_count(count, what) for what, count in called.items() if count]):
            return "no rank called a collective or sent a message"
        took = f" in {format_duration(self.seconds)}" if self.timed else ""
        size = format_bytes(self.input_bytes)
        head = f"{name_ranks(self.others)} entered {join_words(counts)}{took} with {size} of input"
        return head, {"stepped": _STEPPED, "dumped": _DUMPED}.get(self.untimed, "")


_WORTH_SHARES_S = 0.2
"""Shorter runs get no account of their time."""


def explain_time(run: Explained) -> Iterator[Finding]:
    """Yield stragglers, the use of time of a successful run, and totals of calls."""
    evidence = run.evidence
    if evidence.trace.recorded:
        # If it is known which rank broke the run, then a rank that was late before is not the cause.
        known = any(one.ranks and one.kind is not FindingKind.OUT_OF_TIME for one in run.causes)
        slow = [] if evidence.untimed or (known and not run.ended_well) else [*find_straggler(evidence)]
        yield from slow
        if run.ended_well and not evidence.untimed and (slow or evidence.trace.last >= _WORTH_SHARES_S):
            yield from find_shares(evidence)
            yield from find_critical_path(evidence)
        if evidence.steps or not any(rank.cut for rank in evidence.trace.ranks.values()):  # else calls are unknown
            yield account_for(evidence)


# -- the rank that the others waited for

LEAST_STEPS = 3
"""The others must have waited for a rank in at least this many steps,"""
LEAST_PART = 2 / 3
"""in this part of the steps in which any rank waited, and for this part of the waiting time."""
MOST_PART = 3 / 4
"""It is late now and then if fewer than half of the steps are far later than usual, and cost this part of its time."""
LEAST_SHARE = 0.1
"""Even without its worst step, it must cost each of the others this part of the time that the steps span,"""
NOW_AND_THEN_SHARE = 0.05
"""or this part, if it is late only now and then and no other rank is as late,"""
GREAT_SHARE = 1 / 3
"""or this part, if the number of these late steps alone may be chance,"""
LEAST_S = 0.1
"""and at least this many seconds in total."""


def find_straggler(evidence: Evidence) -> Iterator[Finding]:
    """Yield the rank that the others waited for most of the time, or for long now and then."""
    meetings = [step for step in evidence.steps if not step.missing and not step.message and len(step.calls) > 1]
    meetings.sort(key=attrgetter("begin"))
    # ranks reach the first step at different times because they began at different times
    late = lateness_at(meetings[1:], evidence.trace)
    if not (noticed := [one for one in late if one.longest >= NOISE_S]):
        return
    costs: dict[int, float] = defaultdict(float)
    for one in noticed:
        costs[one.call.rank] += one.total
    slow = max(costs, key=costs.__getitem__)
    others = tuple(rank for rank in evidence.trace.ranks if rank != slow)
    mine = [one for one in noticed if one.call.rank == slow]
    jumps = jumps_of(slow, late, len(evidence.trace.ranks))
    seldom = 2 * len(jumps.late) < len(meetings) and sum(one.total for one in jumps.late) >= MOST_PART * costs[slow]
    often = len(mine) >= max(LEAST_STEPS, LEAST_PART * len(noticed)) and costs[slow] >= LEAST_PART * sum(costs.values())
    often = often and not (seldom and jumps.late and not jumps.by_chance)
    share = LEAST_SHARE if often else GREAT_SHARE if jumps.by_chance else NOW_AND_THEN_SHARE
    mine = mine if often else [*jumps.late]
    costs_each = [one.total / len(others) for one in mine]
    each, window = sum(costs_each), _window(meetings)
    again = each - max(costs_each, default=0.0)  # a single step may be an accident
    if again < max(LEAST_S, share * window):
        return
    source = mode(one.call.source for one in mine)
    turns = sum(phase.name == "step" for phase in evidence.trace.ranks[slow].phases)
    jumped = [one.longest for one in jumps.late] or [0.0]
    collected_s, collected_in = _collected_in(mine, evidence.trace)
    yield Straggler(
        each_s=each,
        share=each / window,
        seldom=seldom,
        often=often,
        last=len(mine),
        steps=len(noticed) if often else len(meetings) - 1,
        least_s=min(jumped),
        most_s=max(jumped),
        usual_s=jumps.usual_s,
        turns=turns if mine != jumps.late else 0,
        collected_s=collected_s,
        collected_in=collected_in,
        ranks=(slow,),
        others=others,
        lines=(source,) if source else (),
        seconds=round(each * len(others), 6),
    )


def _window(steps: Sequence[Step]) -> float:
    """Return the seconds from the end of the first of these steps to the end of the last."""
    ends = [call.end for step in steps for call in step.calls.values() if call.end is not None]
    return max(max(ends, default=0.0) - (steps[0].end if steps[0].end is not None else steps[0].begin), 1e-9)


def find_shares(evidence: Evidence) -> Iterator[Finding]:
    """Yield how ranks spent their time."""
    every = [timing.share_of(rank, evidence.step_of) for rank in evidence.trace.ranks.values() if rank.calls]
    if known := {share: hidden_s for share, hidden_s in every if share.total > 0}:
        waited_s, others = max(share.waiting for share in known), tuple(share.rank for share in known)
        yield TimeShares(shares=tuple(known), hidden_s=max(known.values()), others=others, seconds=round(waited_s, 6))


# -- how late ranks came to steps, and how long the others waited for them

JUMP_S = 0.01
"""A rank is late now and then if it is late by at least this much,"""
_TIMES = 5
"""and by this many times the usual delay of other ranks."""
_LEAST_JUMPS = 3
_LEAST_PART = 3 / 4
"""This part of the waiting time in equally late steps must be due to the rank."""
_MOST_CHANCE = 0.02
"""If the probability is higher, it may be chance that a rank has so many of these steps."""


class Lateness(NamedTuple):
    """How long others waited at a step for the rank that came last."""

    call: Call
    """The call of the rank that came last."""
    waited: tuple[float, ...]
    """Seconds, for each of the other ranks that the call blocked."""
    first: bool
    """Whether the line is called for the first time: then setup may take time."""

    @property
    def total(self) -> float:
        """Seconds of all other ranks together."""
        return sum(self.waited)

    @property
    def longest(self) -> float:
        """Seconds of the rank that waited longest."""
        return max(self.waited, default=0.0)


def lateness_at(steps: Sequence[Step], trace: Trace) -> list[Lateness]:
    """Return the lateness at each step to which a single rank certainly came last, in order."""
    spans = {rank: timing.blocked_spans(ranks) for rank, ranks in trace.ranks.items()}
    lateness, lines = [], set[str]()
    counted = dict.fromkeys(trace.ranks, 0.0)  # until when the waits of a rank are counted: those for handles overlap
    for step, pacer in ((step, step.late) for step in steps):
        if pacer is not None:
            early = [call for call in step.calls.values() if call is not pacer and call.index in spans[call.rank]]
            waited = []
            for call in early:
                begin, end = timing.waiting_span(step, call, spans[call.rank][call.index])
                waited.append(max(0.0, end - max(begin, counted[call.rank])))
                counted[call.rank] = max(end, counted[call.rank])
            lateness.append(Lateness(pacer, tuple(waited), pacer.source not in lines))
            lines.add(pacer.source)
    return lateness


class Jumps(NamedTuple):
    """Steps to which one rank came much later than ranks usually do."""

    late: Sequence[Lateness] = ()
    usual_s: float = 0.0
    """Usual delay of other ranks, in seconds."""
    by_chance: bool = True
    """Whether it may be chance that these steps are this rank's."""


def jumps_of(rank: int, late: Sequence[Lateness], ranks: int) -> Jumps:
    """Return the jumps of a rank; empty if they are few, or do not dominate the equally late steps of all ranks."""
    again = [one for one in late if not one.first]
    usual_s = median([one.longest for one in again if one.call.rank != rank] or [0.0])
    jumps = [one for one in again if one.longest >= max(JUMP_S, _TIMES * usual_s)]
    mine = [one for one in jumps if one.call.rank == rank]
    if len(mine) < _LEAST_JUMPS or sum(one.total for one in mine) < _LEAST_PART * sum(one.total for one in jumps):
        return Jumps()
    return Jumps(mine, usual_s, _by_chance(len(mine), len(jumps), ranks) > _MOST_CHANCE)


def _by_chance(mine: int, every: int, ranks: int) -> float:
    """Return an upper bound of the probability that some rank has this many of all steps by chance."""
    others = 1 - 1 / ranks
    return ranks * sum(comb(every, n) * (1 / ranks) ** n * others ** (every - n) for n in range(mine, every + 1))


def _collected_in(late: Sequence[Lateness], trace: Trace) -> tuple[float, int]:
    """Return for how long and how often the garbage collector blocked a rank; 0 if others waited for another reason."""
    held = [timing.covered_s(_common(one, trace.ranks[one.call.rank].collections)) for one in late]
    if sum(held) < sum(map(attrgetter("longest"), late)) / 2:
        return 0.0, 0
    return sum(held), sum(map(bool, held))


def _common(one: Lateness, spans: Sequence[timing.Span]) -> list[timing.Span]:
    """Return the parts of spans within the time in which others waited."""
    since, until = one.call.begin - one.longest, one.call.begin
    return [(max(begin, since), min(end, until)) for begin, end in spans if begin < until and end > since]


# -- the causes of the duration of a run

_MOST_PARTS = 3
_LEAST_PART_SHARE = 0.05


def find_critical_path(evidence: Evidence) -> Iterator[Finding]:
    """Yield the largest parts of the critical path; nothing if it is unknown."""
    path = timing.critical_path_of(evidence)
    if parts := timing.parts_of(path):
        largest = [part for part in parts[:_MOST_PARTS] if part.share >= _LEAST_PART_SHARE] or parts[:1]
        took = path[-1].end - path[0].begin
        yield CriticalPath(
            total_s=took,
            parts=tuple(largest),
            from_new_group=timing.from_new_group(path, evidence.trace),
            others=tuple(sorted({piece.rank for piece in path})),
            lines=tuple(part.source for part in largest),
            seconds=round(took, 6),
        )


# -- totals of what ranks called


def account_for(evidence: Evidence) -> Finding:
    """Return totals of what ranks called."""
    steps, untimed = evidence.steps, evidence.untimed
    if not steps:
        return Account()
    messages = sum(step.message for step in steps)
    calls = [call for step in steps for call in step.calls.values()]
    ends = [call.end for call in calls if call.end is not None and not untimed]
    return Account(
        collectives=len(steps) - messages,
        messages=messages,
        input_bytes=sum(call.bytes_in for call in calls),
        timed=bool(ends),
        untimed=untimed,
        others=tuple(sorted({call.rank for call in calls})),
        seconds=round(max(ends) - min(step.begin for step in steps) if ends else 0.0, 6),
    )


_MOST_SHARES = 4
_STEPPED = "The run held them before each call until a key press, so its times have no meaning."
_DUMPED = "The dumps do not show how the clocks of their machines differ, so no times are given."


def _share(share: timing.TimeShare) -> str:
    parts = {"own work": share.own, "waiting": share.waiting, "communication": share.communicating}
    if share.unknown > NOISE_S:
        parts["not known"] = share.unknown
    shares = ", ".join(f"{value / share.total:.0%} {name}" for name, value in parts.items())
    return f"rank {share.rank} {shares} of {format_duration(share.total)}"


def describe_part(part: timing.PathPart) -> str:
    """Describe a part of the critical path: `rank 1's own work before all_reduce at train.py:12`."""
    call = f"{part.op}{render_lines([part.source])}"
    if part.rank is None:
        return f"communication in {call}"
    return f"rank {part.rank}'s own work {f'before {call}' if part.op else 'after its last call'}"
