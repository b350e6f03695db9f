"""The training step of a run as a program: what each rank does in it, in order, and what its own work takes.

A step lasts from the end of an optimizer step to the end of the next one. Steps in which every rank called the same are
alike; those of the most frequent kind are the program, the others (the first ones, evaluation, checkpoints) are left
out. A rank's program is a sequence of own work, calls that it begins, and calls that it waits for.
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

from lab.projection.contention import Clock
from lab.projection.waits import waits_of
from lab.trace.model import Call, Mark, RankTrace, Trace
from lab.trace.steps import Step
from lab.trace.timing import Span
from lab.trace.traffic import size_of

WARMUP = 1
"""Steps that are left out after the first optimizer step, where there are enough: caches fill, DDP cuts its buckets."""
OPTIMIZER = "step"


class Key(NamedTuple):
    """Which collective or message of a training step it is."""

    lane: str
    """The group, or sender, receiver and tag of a message: what is in one lane goes one after the other."""
    number: int
    """From 0."""


class Work(NamedTuple):
    """Own work."""

    seconds: float
    """On a core of its own."""
    phase: str
    """The innermost mark around it; empty outside."""


class Begin(NamedTuple):
    """A call is made, and the rank goes on."""

    key: Key


class Wait(NamedTuple):
    """The rank goes on when its call is over."""

    key: Key


Action = Work | Begin | Wait


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective or a message of the program."""

    op: str
    ranks: tuple[int, ...]
    """Who takes part; of a message sender and receiver."""
    size: float
    """Bytes, as nccl-tests counts them."""
    group: str
    """Name of its group."""
    phase: str
    """The mark within which it is called."""
    root: int | None = None


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
    settled: frozenset[int]
    """Numbers of the collectives and messages in them."""
    left_out: int
    """Steps that were not alike, or the first ones."""
    ranks: int


class _Turn(NamedTuple):
    """A training step of one rank."""

    actions: list[Action]
    steps: dict[Key, Step]
    seconds: float


def program_of(trace: Trace, steps: Sequence[Step], clock: Clock) -> Program | None:
    """The program of a run; None where it has no two training steps that are alike."""
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    turns = {number: _turns(rank, step_of, clock) for number, rank in trace.ranks.items()}
    count = min((len(of_rank) for of_rank in turns.values()), default=0)
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number in range(count):
        if _closed(number, turns):
            kinds[tuple(_signature(of_rank[number]) for of_rank in turns.values())].append(number)
    alike = max(kinds.values(), key=len, default=[])
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


def data_on_its_way(steps: Sequence[Step]) -> list[Span]:
    """When data was on its way, a span for each rank that took part."""
    spans: list[Span] = []
    for step in steps:
        ready = step.ready
        if ready is None:
            continue
        receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
        for call in step.calls.values():  # a send ends when somebody looks at it, long after the receive perhaps
            until = call.end if receiver is None else receiver.end
            if until is not None:
                spans.append((max(ready, call.begin), until))
    return spans


def _turns(rank: RankTrace, step_of: Mapping[tuple[int, int], Step], clock: Clock) -> list[_Turn]:
    ends = sorted(mark.end for mark in rank.marks if mark.name == OPTIMIZER and mark.end is not None)
    waits, marks = waits_of(rank), _phases(rank.marks)
    turns, calls, place = [], rank.calls, 0
    for begin, end in pairwise(ends):
        while place < len(calls) and calls[place].begin < begin:
            place += 1
        first = place
        while place < len(calls) and calls[place].begin < end:
            place += 1
        turns.append(_turn((begin, end), calls[first:place], step_of, waits, clock, marks))
    return turns


def _turn(
    span: Span,
    calls: Sequence[Call],
    step_of: Mapping[tuple[int, int], Step],
    waits: Mapping[int, Span],
    clock: Clock,
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
        actions += _work(at, time, clock, phases)
        at = max(at, time, until)
        if kind == 0:
            lane = lane_of(step)
            key = keys[call.index] = Key(lane, lanes[lane])
            lanes[lane] += 1
            found[key] = step
        actions.append(Begin(keys[call.index]) if kind == 0 else Wait(keys[call.index]))
    actions += _work(at, end, clock, phases)
    return _Turn(actions, found, end - begin)


def lane_of(step: Step) -> str:
    """What goes one after the other: the collectives of a group, the messages from one rank to another with one tag."""
    if not step.message:
        return step.group.name
    tags = {call.tag for call in step.calls.values()}
    return f"{step.source}>{step.destination} {min(tags)} {step.group.name}"


def _work(begin: float, end: float, clock: Clock, phases: Sequence[tuple[float, str]]) -> list[Action]:
    """Own work between two moments, cut where a mark begins or ends."""
    found: list[Action] = []
    place = bisect_right(phases, begin, key=itemgetter(0))
    while begin < end:
        until = min(end, phases[place][0]) if place < len(phases) else end
        seconds = clock.between(begin, until)
        if seconds > 0:
            found.append(Work(seconds, phases[place - 1][1] if place else ""))
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
    return sum(action.seconds for action in actions if isinstance(action, Work))


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
