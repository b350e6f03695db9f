"""The training step of a run as a program: what each rank does in it, in order, and what its own work takes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from lab.features.projection.replay import Action, Begin, Clock, Key, Transfer, Wait, Work
from lab.features.traffic.traffic import size_of
from lab.trace.model import Call, Mark, RankTrace, Trace, calls_within
from lab.trace.steps import Step
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


AT_ONCE = {"gloo": 2}
"""Collectives of one group that a library carries at once (gloo has two threads for a group); of others, one."""


@dataclass(frozen=True, slots=True)
class Flight:
    """The data of one collective or message."""

    step: Step
    begin: float
    ends: Mapping[int, float]
    """By rank; of a message, the receiver's for both, as a send is told to be over when somebody looks at it."""
    late: bool
    """Whether the message was there already, perhaps for long, when it was asked for."""

    @property
    def spans(self) -> list[Span]:
        """By rank that took part, while its data was on its way."""
        calls = self.step.calls
        return [(max(self.begin, calls[rank].begin), end) for rank, end in self.ends.items()]


def flights_of(steps: Iterable[Step], library: str) -> list[Flight]:
    """Of all that were done, in the order in which they could begin."""
    done = [step for step in steps if step.state == "completed" and step.ready is not None and len(step.expected) > 1]
    free: dict[tuple[str, int], list[float]] = {}
    found = []
    for step in sorted(done, key=lambda step: step.ready or 0.0):
        receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
        ends = {rank: end for rank, call in step.calls.items() if (end := (receiver or call).end) is not None}
        lane, at_once = lane_of(step), 1 if step.message else AT_ONCE.get(library, 1)
        threads = {rank: free.setdefault((lane, rank), [-math.inf] * at_once) for rank in ends}
        ready = step.ready or 0.0
        begin = max([ready, *(min(of_rank) for of_rank in threads.values())])
        for rank, of_rank in threads.items():
            of_rank[of_rank.index(min(of_rank))] = ends[rank]
        found.append(Flight(step, begin, ends, receiver is not None and receiver.begin == ready))
    return found


def lane_of(step: Step) -> str:
    """What goes in order: the collectives of a group, the messages from one rank to another with one tag."""
    if not step.message:
        return step.group.name
    tags = {call.tag for call in step.calls.values()}
    return f"{step.source}>{step.destination} {min(tags)} {step.group.name}"


WARMUP = 1
"""Steps that are left out after the first optimizer step, where there are enough: caches fill, DDP cuts its buckets."""
OPTIMIZER = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the ranks of a run do in a training step."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    """By rank, what it did in each step: the same everywhere but for the time of its own work."""
    transfers: Mapping[Key, Transfer]
    steps_s: Sequence[float]
    """What each step took, median of the ranks."""
    own_s: Sequence[float]
    """Own work of each step, the mean over the ranks, on cores of their own."""
    took_s: Mapping[Key, Sequence[Mapping[int, float]]]
    """By call, in each step and for each rank: how long its data was on its way, on cores of its own."""
    settled: frozenset[int]
    """Numbers of the collectives and messages in the steps."""
    left_out: int
    """Steps that were not alike, or the first ones."""
    ranks: int


class Own(NamedTuple):
    """How own work is told."""

    clock: Clock
    wanting: float
    """In what part of it a rank wanted a core."""


class _Turn(NamedTuple):
    """A training step of one rank."""

    actions: list[Action]
    steps: dict[Key, Step]
    seconds: float


def program_of(
    trace: Trace, steps: Sequence[Step], flights: Sequence[Flight], clock: Clock, wanting: float
) -> Program | None:
    """The program of a run; None where it has no two training steps that are alike.

    Args:
        trace: of the run.
        steps: its collectives and messages.
        flights: when their data was on its way.
        clock: of its cores.
        wanting: in what part of its own work a rank wanted a core.
    """
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    turns = {number: _turns(rank, step_of, Own(clock, wanting)) for number, rank in trace.ranks.items()}
    count = min((len(of_rank) for of_rank in turns.values()), default=0)
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number in range(count):
        if _closed(number, turns):
            kinds[tuple(_signature(of_rank[number]) for of_rank in turns.values())].append(number)
    sends = {kind: any(of_rank[numbers[0]].steps for of_rank in turns.values()) for kind, numbers in kinds.items()}
    alike = kinds[max(kinds, key=lambda kind: (sends[kind], len(kinds[kind])))] if kinds else []
    kept = [number for number in alike if number >= WARMUP] if len(alike) > 2 else alike
    if len(kept) < 2:
        return None
    chosen = {rank: [of_rank[number] for number in kept] for rank, of_rank in turns.items()}
    return Program(
        turns={rank: [turn.actions for turn in of_rank] for rank, of_rank in chosen.items()},
        transfers=_transfers(chosen),
        steps_s=[median(of_rank[place].seconds for of_rank in chosen.values()) for place in range(len(kept))],
        own_s=[
            sum(_own(of_rank[place].actions) for of_rank in chosen.values()) / len(chosen) for place in range(len(kept))
        ],
        took_s=_taken(chosen, flights, clock),
        settled=frozenset(
            step.number for of_rank in chosen.values() for turn in of_rank for step in turn.steps.values()
        ),
        left_out=max(map(len, turns.values())) - len(kept),
        ranks=len(chosen),
    )


def own_work(trace: Trace) -> list[Span]:
    """When ranks worked, outside of what held them up."""
    spans: list[Span] = []
    for rank in trace.ranks.values():
        at = rank.first
        for begin, end in sorted(waits_of(rank).values()):
            if begin > at:
                spans.append((at, begin))
            at = max(at, end)
        spans.append((at, rank.last))
    return spans


def _taken(
    turns: Mapping[int, Sequence[_Turn]], flights: Sequence[Flight], clock: Clock
) -> dict[Key, list[dict[int, float]]]:
    by_step = {id(flight.step): flight for flight in flights}
    found: dict[Key, list[dict[int, float]]] = defaultdict(list)
    for place in range(min(map(len, turns.values()))):
        steps = {key: step for of_rank in turns.values() for key, step in of_rank[place].steps.items()}
        for key, step in steps.items():
            flight = by_step.get(id(step))
            ends = (
                {} if flight is None else {rank: clock.between(flight.begin, end) for rank, end in flight.ends.items()}
            )
            found[key].append(ends)
    return found


def _turns(rank: RankTrace, step_of: Mapping[tuple[int, int], Step], own: Own) -> list[_Turn]:
    ends = sorted(mark.end for mark in rank.marks if mark.name == OPTIMIZER and mark.end is not None)
    waits, marks = waits_of(rank), _phases(rank.marks)
    turns, calls, place = [], rank.calls, 0
    for begin, end in pairwise(ends):
        while place < len(calls) and calls[place].begin < begin:
            place += 1
        first = place
        while place < len(calls) and calls[place].begin < end:
            place += 1
        turns.append(_turn((begin, end), calls[first:place], step_of, waits, own, marks))
    return turns


def _turn(
    span: Span,
    calls: Sequence[Call],
    step_of: Mapping[tuple[int, int], Step],
    waits: Mapping[int, Span],
    own: Own,
    phases: Sequence[tuple[float, str]],
) -> _Turn:
    begin, end = span
    points: list[tuple[float, int, Call, float]] = []
    for call in calls:
        points.append((call.begin, 0, call, call.begin))
        wait = waits.get(call.index)
        if wait is not None and wait[0] < end:
            points.append((max(wait[0], call.begin), 1, call, min(wait[1], end)))
    points.sort(key=lambda point: point[:2])
    actions: list[Action] = []
    keys: dict[int, Key] = {}
    found: dict[Key, Step] = {}
    lanes: Counter[str] = Counter()
    at = begin
    for time, kind, call, until in points:
        step = step_of.get((call.rank, call.index))
        if step is None:
            continue
        actions += _work(at, time, own, phases)
        at = max(at, time, until)
        if kind == 0:
            lane = lane_of(step)
            key = keys[call.index] = Key(lane, lanes[lane])
            lanes[lane] += 1
            found[key] = step
        actions.append(Begin(keys[call.index]) if kind == 0 else Wait(keys[call.index]))
    actions += _work(at, end, own, phases)
    return _Turn(actions, found, end - begin)


def _work(begin: float, end: float, own: Own, phases: Sequence[tuple[float, str]]) -> list[Action]:
    """Own work between two moments, cut where a mark begins or ends."""
    found: list[Action] = []
    place = bisect_right(phases, begin, key=itemgetter(0))
    while begin < end:
        until = min(end, phases[place][0]) if place < len(phases) else end
        seconds = own.clock.between(begin, until)
        if seconds > 0:
            idle_s = (until - begin) * (1 - own.wanting)
            found.append(Work(seconds * own.wanting, phases[place - 1][1] if place else "", idle_s))
        begin, place = until, place + 1
    return found


def _phases(marks: Sequence[Mark]) -> list[tuple[float, str]]:
    """The innermost mark from each moment on at which one begins or ends."""
    edges = [(mark.begin, 1, mark.name) for mark in marks] + [
        (mark.end, 0, mark.name) for mark in marks if mark.end is not None
    ]
    inside: list[str] = []
    found = []
    for time, begins, name in sorted(edges):
        if begins:
            inside.append(name)
        elif name in inside:
            del inside[len(inside) - 1 - inside[::-1].index(name) :]
        found.append((time, inside[-1] if inside else ""))
    return found


def _closed(number: int, turns: Mapping[int, Sequence[_Turn]]) -> bool:
    """Whether all who take part in what is called in a training step have called it in that step."""
    places: dict[int, tuple[Key, set[int]]] = {}
    for rank, of_rank in turns.items():
        for key, step in of_rank[number].steps.items():
            known, ranks = places.setdefault(id(step), (key, set()))
            if known != key or step.state != "completed":
                return False
            ranks.add(rank)
    steps = {id(step): step for of_rank in turns.values() for step in of_rank[number].steps.values()}
    return all(ranks >= set(steps[name].expected) for name, (_, ranks) in places.items())


def _signature(turn: _Turn) -> tuple[object, ...]:
    return tuple(
        (type(action) is Begin, action.key, *_kind(turn.steps[action.key]))
        for action in turn.actions
        if not isinstance(action, Work)
    )


def _kind(step: Step) -> tuple[object, ...]:
    return step.op, size_of(step), step.source if step.operation.rooted else None


def _own(actions: Sequence[Action]) -> float:
    return sum(action.whole_s for action in actions if isinstance(action, Work))


def _transfers(turns: Mapping[int, Sequence[_Turn]]) -> dict[Key, Transfer]:
    found: dict[Key, Transfer] = {}
    for of_rank in turns.values():
        for key, step in of_rank[0].steps.items():
            ends = (step.source, step.destination)
            ranks = tuple(rank for rank in ends if rank is not None) if step.message else step.group.ranks
            phase = min(call.phase for call in step.calls.values())
            root = (step.source if step.source is not None else step.destination) if step.operation.rooted else None
            found[key] = Transfer(step.op, ranks, size_of(step), step.group.name, phase, root)
    return found
