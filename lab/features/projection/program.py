"""The training step of a run as a program: what each rank does in it, in order, and what its own work takes.

A step lasts from the end of an optimizer step to the end of the next one. Steps in which every rank called the same are
alike; those of the most frequent kind in which something is sent are the program, the others (the first ones,
evaluation, checkpoints) are left out. A rank's program is a sequence of own work, calls that it begins, and calls that
it waits for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from lab.features.projection.actions import Action, Begin, Key, Transfer, Wait, Work
from lab.features.projection.flights import Flight, lane_of
from lab.features.projection.replay import Clock
from lab.features.projection.waits import waits_of
from lab.features.traffic.traffic import size_of
from lab.trace.model import Call, Mark, RankTrace, Trace
from lab.trace.steps import Step
from lab.trace.timing import Span

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
