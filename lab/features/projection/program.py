"""The training step of a run as a program: what each rank does in it, in order, and what its own work takes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter
from statistics import median
from typing import NamedTuple

from lab.features.projection.replay import Action, Begin, Clock, Key, Transfer, Wait, Work
from lab.trace.model import Call, Mark, RankTrace, Trace, calls_within
from lab.trace.steps import Step
from lab.trace.timing import Span, blocked_spans, wait_for
from lab.trace.traffic import size_of


def waits_of(rank: RankTrace) -> dict[int, Span]:
    """By index of the call: from when its rank waited for it, and until when; the same moment where it did not have to.

    It is `lab.trace.timing.blocked_spans`, and beyond it the waits for what was over already, which may hold a rank up
    in another world; and a call of a backward pass that blocks (FSDP's, tensor parallel ones) is one that blocks. Calls
    that nobody was seen to wait for are not there.
    """
    spans = {**blocked_spans(rank)}
    passes = [(mark.begin, mark.end) for mark in rank.marks if mark.name == "backward" and mark.end is not None]
    for call in rank.calls:
        if call.end is None:
            continue
        at = bisect_right(passes, call.begin, key=itemgetter(0)) - 1
        if at >= 0 and call.begin <= (pass_end := passes[at][1]):
            later = calls_within(rank.calls, call.begin, call.end)
            if call.hands_out or call.bucket is not None or any(other.begin > call.begin for other in later):
                spans.setdefault(call.index, (pass_end, pass_end))
            else:
                spans[call.index] = call.begin, call.end
        elif call.index not in spans and call.hands_out and (wait := wait_for(call, rank)) is not None:
            spans[call.index] = wait.begin, wait.begin
    return {call.index: spans[call.index] for call in rank.calls if call.end is not None and call.index in spans}


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


class _Turn(NamedTuple):
    """A training step of one rank."""

    actions: list[Action]
    steps: dict[Key, Step]
    seconds: float

    @property
    def own_s(self) -> float:
        """What its own work takes on a core of its own."""
        return sum(action.whole_s for action in self.actions if isinstance(action, Work))


def program_of(
    trace: Trace, steps: Sequence[Step], flights: Sequence[Flight], clock: Clock, wanting: float
) -> Program | None:
    """The program of a run; None where it has no two training steps that are alike.

    A step lasts from the end of an optimizer step to the end of the next one. Steps in which every rank called the same
    are alike; those of the most frequent kind in which something is sent are the program, the others (the first ones,
    evaluation, checkpoints) are left out.

    Args:
        trace: of the run.
        steps: its collectives and messages.
        flights: when their data was on its way.
        clock: of its cores.
        wanting: in what part of its own work a rank wanted a core.
    """
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    turns = {number: _turns(rank, step_of, clock, wanting) for number, rank in trace.ranks.items()}
    kinds: dict[tuple[tuple[object, ...], ...], list[int]] = defaultdict(list)
    for number in range(min(map(len, turns.values()), default=0)):
        together = {rank: of_rank[number] for rank, of_rank in turns.items()}
        if _is_closed(together):
            kinds[tuple(map(_signature, together.values()))].append(number)
    alike = max(kinds.items(), key=lambda item: (any(item[0]), len(item[1])))[1] if kinds else []
    kept = [number for number in alike if number >= WARMUP] if len(alike) > 2 else alike
    if len(kept) < 2:
        return None
    chosen = {rank: [of_rank[number] for number in kept] for rank, of_rank in turns.items()}
    by_step = {id(flight.step): flight for flight in flights}
    took_s: dict[Key, list[dict[int, float]]] = defaultdict(list)
    rounds = list(zip(*chosen.values(), strict=True))
    for turns_of_step in rounds:
        for key, step in {key: step for turn in turns_of_step for key, step in turn.steps.items()}.items():
            flight = by_step.get(id(step))
            ends = flight.ends.items() if flight is not None else ()
            took_s[key].append({rank: clock.between(flight.begin, end) for rank, end in ends} if flight else {})
    return Program(
        turns={rank: [turn.actions for turn in of_rank] for rank, of_rank in chosen.items()},
        transfers={key: _transfer(step) for of_rank in chosen.values() for key, step in of_rank[0].steps.items()},
        steps_s=[median(turn.seconds for turn in together) for together in rounds],
        own_s=[sum(turn.own_s for turn in together) / len(together) for together in rounds],
        took_s=took_s,
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


def _turns(rank: RankTrace, step_of: Mapping[tuple[int, int], Step], clock: Clock, wanting: float) -> list[_Turn]:
    waits, phases, turns = waits_of(rank), _phases(rank.marks), []

    def own(begin: float, end: float) -> Iterator[Action]:
        """Own work between two moments, cut where a mark begins or ends."""
        place = bisect_right(phases, begin, key=itemgetter(0))
        while begin < end:
            until = min(end, phases[place][0]) if place < len(phases) else end
            seconds = clock.between(begin, until)
            if seconds > 0:
                phase = phases[place - 1][1] if place else ""
                yield Work(seconds * wanting, phase, (until - begin) * (1 - wanting))
            begin, place = until, place + 1

    for begin, end in pairwise(sorted(m.end for m in rank.marks if m.name == OPTIMIZER and m.end is not None)):
        first, last = (bisect_left(rank.calls, moment, key=attrgetter("begin")) for moment in (begin, end))
        points: list[tuple[float, int, Call, float]] = []
        for call in rank.calls[first:last]:
            points.append((call.begin, 0, call, call.begin))
            wait = waits.get(call.index)
            if wait is not None and wait[0] < end:
                points.append((max(wait[0], call.begin), 1, call, min(wait[1], end)))
        actions: list[Action] = []
        keys: dict[int, Key] = {}
        steps: dict[Key, Step] = {}
        lanes: Counter[str] = Counter()
        at = begin
        for time, is_wait, call, until in sorted(points, key=lambda point: point[:2]):
            step = step_of.get((call.rank, call.index))
            if step is None:
                continue
            actions += own(at, time)
            at = max(at, time, until)
            if not is_wait:
                lane = lane_of(step)
                key = keys[call.index] = Key(lane, lanes[lane])
                lanes[lane] += 1
                steps[key] = step
            actions.append(Wait(keys[call.index]) if is_wait else Begin(keys[call.index]))
        turns.append(_Turn([*actions, *own(at, end)], steps, end - begin))
    return turns


def _phases(marks: Sequence[Mark]) -> list[tuple[float, str]]:
    """The innermost mark from each moment on at which one begins or ends."""
    edges = [(mark.begin, 1, mark.name) for mark in marks]
    edges += [(mark.end, 0, mark.name) for mark in marks if mark.end is not None]
    inside: list[str] = []
    phases = []
    for time, begins, name in sorted(edges):
        if begins:
            inside.append(name)
        elif name in inside:
            del inside[len(inside) - 1 - inside[::-1].index(name) :]
        phases.append((time, inside[-1] if inside else ""))
    return phases


def _is_closed(turns: Mapping[int, _Turn]) -> bool:
    """Whether all who take part in what is called in a training step have called it in that step."""
    places: dict[int, tuple[Key, Step, set[int]]] = {}
    for rank, turn in turns.items():
        for key, step in turn.steps.items():
            known, _, ranks = places.setdefault(id(step), (key, step, set()))
            if known != key or step.state != "completed":
                return False
            ranks.add(rank)
    return all(ranks >= set(step.expected) for _, step, ranks in places.values())


def _signature(turn: _Turn) -> tuple[object, ...]:
    """What is the same in training steps that are alike: the order of its calls and waits, and what each sends."""
    called = [(type(action) is Begin, action.key) for action in turn.actions if not isinstance(action, Work)]
    return tuple(
        (begins, key, (step := turn.steps[key]).op, size_of(step), step.source if step.operation.rooted else None)
        for begins, key in called
    )


def _transfer(step: Step) -> Transfer:
    ends = (step.source, step.destination)
    ranks = tuple(rank for rank in ends if rank is not None) if step.message else step.group.ranks
    phase = min(call.phase for call in step.calls.values())
    root = (step.source if step.source is not None else step.destination) if step.operation.rooted else None
    return Transfer(step.op, ranks, size_of(step), step.group.name, phase, root)
