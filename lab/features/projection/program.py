"""The training step of a run as a program: the actions of each rank, in order, and how a larger world changes them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from statistics import median
from typing import NamedTuple

from lab.errors import LabError
from lab.features.projection.costs import Pattern, pattern_of
from lab.features.projection.replay import Action, Begin, Clock, Key, Transfer, Wait, Work
from lab.features.stragglers.timing import Span, blocked_spans, free_spans, wait_for
from lab.features.traffic.traffic import size_of
from lab.operations import get_operation
from lab.trace.model import Call, Phase, RankTrace, Trace, calls_within
from lab.trace.steps import Step
from lab.words import format_count, join_words


def waits_of(rank: RankTrace) -> dict[int, Span]:
    """Return from when until when each rank waited for a call, by its index; both are equal if it did not have to wait.

    This extends `blocked_spans` by waits for completed calls, which may block a rank in another world. A blocking call
    of a backward pass (FSDP, tensor parallel) counts as blocking. Calls without a known wait are left out.
    """
    spans = {**blocked_spans(rank)}
    passes = [(phase.begin, phase.end) for phase in rank.phases if phase.name == "backward" and phase.end is not None]
    for call in rank.calls:
        if call.end is None:
            continue
        at = bisect_right(passes, call.begin, key=itemgetter(0)) - 1
        if at >= 0 and call.begin <= (pass_end := passes[at][1]):
            later = calls_within(rank.calls, call.begin, call.end)
            if call.has_handle or call.bucket is not None or any(other.begin > call.begin for other in later):
                spans.setdefault(call.index, (pass_end, pass_end))
            else:
                spans[call.index] = call.begin, call.end
        elif call.index not in spans and call.has_handle and (wait := wait_for(call, rank)) is not None:
            spans[call.index] = wait.begin, wait.begin
    return {call.index: spans[call.index] for call in rank.calls if call.end is not None and call.index in spans}


AT_ONCE = {"gloo": 2}
"""Collectives of one group that a library runs at once (gloo has two threads per group); one for the others."""


class Flight(NamedTuple):
    """The data of one collective or message."""

    step: Step
    begin: float
    ends: Mapping[int, float]
    """By rank; for a message both have the receiver's, because the script may check a send
    much later than its end.
    """
    late: bool
    """Whether the message had already arrived, perhaps long ago, when the receiver asked for it."""

    @property
    def spans(self) -> list[Span]:
        """When data was in flight, for each rank that took part."""
        return [(max(self.begin, self.step.calls[rank].begin), end) for rank, end in self.ends.items()]


def flights_of(steps: Iterable[Step], library: str) -> list[Flight]:
    """Return the flights of all completed steps, in the order in which they could begin."""
    done = [step for step in steps if step.state == "completed" and step.ready is not None and len(step.expected) > 1]
    free: dict[tuple[str, int], list[float]] = {}
    flights = []
    for ready, step in sorted(((step.ready or 0.0, step) for step in done), key=itemgetter(0)):
        receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
        ends = {rank: end for rank, call in step.calls.items() if (end := (receiver or call).end) is not None}
        lane, at_once = lane_of(step), 1 if step.message else AT_ONCE.get(library, 1)
        threads = [free.setdefault((lane, rank), [-math.inf] * at_once) for rank in ends]
        begin = max([ready, *map(min, threads)])
        for of_rank, end in zip(threads, ends.values(), strict=True):
            of_rank[of_rank.index(min(of_rank))] = end
        flights.append(Flight(step, begin, ends, receiver is not None and receiver.begin == ready))
    return flights


def lane_of(step: Step) -> str:
    """Return the name of what runs in order: a group's collectives, or the messages between two ranks with one tag."""
    if not step.message:
        return step.group.name
    tags = {call.tag for call in step.calls.values()}
    return f"{step.source}>{step.destination} {min(tags)} {step.group.name}"


WARMUP = 1
"""Steps to leave out after the first optimizer step, if there are enough: caches fill, DDP builds its buckets."""
OPTIMIZER = "step"


class Program(NamedTuple):
    """The actions of the ranks of a run in a training step."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    """By rank, its actions in each step; only the times differ between steps."""
    transfers: Mapping[Key, Transfer]
    steps_s: Sequence[float]
    """Duration of each step, median of the ranks."""
    took_s: Mapping[Key, Sequence[Mapping[int, float]]]
    """By call, in each step and for each rank: how long its data was in flight, on cores of its own."""
    settled: frozenset[int]
    """Numbers of the collectives and messages in the steps."""
    left_out: int
    """Number of steps that were different, or among the first ones."""
    ranks: int


class _Turn(NamedTuple):
    """A training step of one rank."""

    actions: list[Action]
    steps: dict[Key, Step]
    seconds: float


def program_of(
    trace: Trace, steps: Sequence[Step], flights: Sequence[Flight], clock: Clock, wanting: float
) -> Program | None:
    """Return the program of a run; None if it has no two equal training steps.

    A step lasts from the end of an optimizer step to the end of the next one. Steps with the same calls on every rank
    are equal. The most frequent kind with communication is the program. The others (first steps, evaluation,
    checkpoints) are left out.

    Args:
        trace: The trace of the run.
        steps: Its collectives and messages.
        flights: When their data was in flight.
        clock: The clock of its cores.
        wanting: The share of its own work in which a rank wanted a core.
    """
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    turns = {number: _turns(rank, step_of, clock, wanting) for number, rank in trace.ranks.items()}
    kinds: dict[tuple[tuple[object, ...], ...], list[int]] = defaultdict(list)
    for number in range(min(map(len, turns.values()), default=0)):
        turns_now = {rank: of_rank[number] for rank, of_rank in turns.items()}
        if _is_closed(turns_now):
            kinds[tuple(map(_signature, turns_now.values()))].append(number)
    alike = max(kinds.items(), key=lambda item: (any(item[0]), len(item[1])))[1] if kinds else []
    kept = [number for number in alike if number >= WARMUP] if len(alike) > 2 else alike
    if len(kept) < 2:
        return None
    chosen = {rank: [of_rank[number] for number in kept] for rank, of_rank in turns.items()}
    by_step = {id(flight.step): flight for flight in flights}
    took_s: dict[Key, list[dict[int, float]]] = defaultdict(list)
    rounds = list(zip(*chosen.values(), strict=True))
    for of_ranks in rounds:
        for key, step in {key: step for turn in of_ranks for key, step in turn.steps.items()}.items():
            flight = by_step.get(id(step))
            ends = flight.ends if flight is not None else {}
            took_s[key].append({rank: clock.between(flight.begin, end) for rank, end in ends.items() if flight})
    return Program(
        turns={rank: [turn.actions for turn in of_rank] for rank, of_rank in chosen.items()},
        transfers={key: _transfer(step) for of_rank in chosen.values() for key, step in of_rank[0].steps.items()},
        steps_s=[median(turn.seconds for turn in of_ranks) for of_ranks in rounds],
        took_s=took_s,
        settled=frozenset(step.number for of_ranks in rounds for turn in of_ranks for step in turn.steps.values()),
        left_out=max(map(len, turns.values())) - len(kept),
        ranks=len(chosen),
    )


def own_work(trace: Trace) -> list[Span]:
    """Return when ranks worked, outside of waits."""
    ranks = trace.ranks.values()
    return [span for rank in ranks for span in free_spans(waits_of(rank).values(), rank.first, rank.last)]


def _turns(rank: RankTrace, step_of: Mapping[tuple[int, int], Step], clock: Clock, wanting: float) -> list[_Turn]:
    waits, phases, turns = waits_of(rank), _phases(rank.phases), []

    def own(begin: float, end: float) -> Iterator[Action]:
        """Yield own work between two moments, cut where a phase begins or ends."""
        index = bisect_right(phases, begin, key=itemgetter(0))
        while begin < end:
            until = min(end, phases[index][0]) if index < len(phases) else end
            if (seconds := clock.between(begin, until)) > 0:
                yield Work(seconds * wanting, phases[index - 1][1] if index else "", (until - begin) * (1 - wanting))
            begin, index = until, index + 1

    for begin, end in pairwise(sorted(m.end for m in rank.phases if m.name == OPTIMIZER and m.end is not None)):
        points: list[tuple[float, bool, Call, float]] = []
        first, last = (bisect_left(rank.calls, moment, key=attrgetter("begin")) for moment in (begin, end))
        for call in rank.calls[first:last]:
            points.append((call.begin, False, call, call.begin))
            if (wait := waits.get(call.index)) is not None and wait[0] < end:
                points.append((max(wait[0], call.begin), True, call, min(wait[1], end)))
        actions: list[Action] = []
        keys: dict[int, Key] = {}
        steps: dict[Key, Step] = {}
        lanes: Counter[str] = Counter()
        at = begin
        for time, is_wait, call, until in sorted(points, key=itemgetter(0, 1)):
            if (step := step_of.get((call.rank, call.index))) is None:
                continue
            actions += own(at, time)
            at = max(at, time, until)
            if not is_wait:
                lane = lane_of(step)
                keys[call.index] = Key(lane, lanes[lane])
                steps[keys[call.index]] = step
                lanes[lane] += 1
            actions.append((Wait if is_wait else Begin)(keys[call.index]))
        turns.append(_Turn([*actions, *own(at, end)], steps, end - begin))
    return turns


def _phases(phases: Sequence[Phase]) -> list[tuple[float, str]]:
    """Return the moments at which a phase begins or ends, each with the innermost phase from then on."""
    edges = [(phase.begin, 1, phase.name) for phase in phases]
    edges += [(phase.end, 0, phase.name) for phase in phases if phase.end is not None]
    inside: list[str] = []
    changes = []
    for time, begins, name in sorted(edges):
        if begins:
            inside.append(name)
        elif name in inside:
            del inside[len(inside) - 1 - inside[::-1].index(name) :]
        changes.append((time, inside[-1] if inside else ""))
    return changes


def _is_closed(turns: Mapping[int, _Turn]) -> bool:
    """Return whether all participants of each call in a training step have called it in that step."""
    participants: dict[int, tuple[Key, Step, set[int]]] = {}
    for rank, turn in turns.items():
        for key, step in turn.steps.items():
            first_key, _, ranks = participants.setdefault(id(step), (key, step, set()))
            if first_key != key or step.state != "completed":
                return False
            ranks.add(rank)
    return all(ranks >= set(step.expected) for _, step, ranks in participants.values())


def _signature(turn: _Turn) -> tuple[object, ...]:
    """Return the common part of equal training steps: the order of calls and waits, and the bytes of each call."""
    return tuple(
        (
            type(action),
            action.key,
            (step := turn.steps[action.key]).op,
            size_of(step),
            step.operation.rooted and step.source,
        )
        for action in turn.actions
        if not isinstance(action, Work)
    )


def _transfer(step: Step) -> Transfer:
    ends = (step.source, step.destination)
    ranks = tuple(rank for rank in ends if rank is not None) if step.message else step.group.ranks
    phase = min(call.phase for call in step.calls.values())
    root = (step.source if step.source is not None else step.destination) if step.operation.rooted else None
    return Transfer(step.op, ranks, size_of(step), step.group.name, phase, root)


_MOST_STAGES = 512
"""Deeper pipelines are unrealistic, and would take long to replay."""
_SHARDING = {Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER}
_GROWING = {Pattern.ALL_GATHER, Pattern.PARTS}
"""These carry more in a larger group, because each rank contributes as much as before."""


class Growth(NamedTuple):
    """How a program grows with the world."""

    groups: frozenset[str] = frozenset()
    """Names of the groups that grow with the world."""
    sharded: frozenset[str] = frozenset()
    """The groups among them over which parameters are sharded."""
    replica: int = 1
    """A larger world has a multiple of this number of ranks."""
    most: int = 1 << 20
    """The largest supported number of ranks."""
    stages: bool = False
    """Whether it is a pipeline that gets more stages."""
    assumed: tuple[str, ...] = ()
    """Assumptions, a sentence each."""

    def size(self, transfer: Transfer, factor: float) -> float:
        """Return the bytes of a transfer in a world that is `factor` times as large, as nccl-tests counts them."""
        if transfer.group not in self.groups or transfer.group in self.sharded:
            return transfer.size
        return transfer.size * (factor if pattern_of(get_operation(transfer.op)) in _GROWING else 1.0)

    def work(self, phase: str, factor: float) -> float:
        """Return the factor for own work: with sharding, the optimizer has only its shard."""
        return 1 / factor if self.sharded and phase == OPTIMIZER else 1.0


def growth_of(program: Program, trace: Trace) -> Growth:
    """Return what grows when a run gets more ranks.

    Raises:
        LabError: The run has no data parallel group, and is not a pipeline.
    """
    by_group: dict[str, list[Transfer]] = defaultdict(list)
    patterns: dict[str, set[Pattern]] = defaultdict(set)
    messages = False
    for transfer in program.transfers.values():
        if (pattern := pattern_of(get_operation(transfer.op))) is Pattern.MESSAGE:
            messages = True
        else:
            by_group[transfer.group].append(transfer)
            patterns[transfer.group].add(pattern)
    world = {name for name, calls in by_group.items() if len(calls[0].ranks) == program.ranks}
    sharded = {name for name, of_group in patterns.items() if _SHARDING.issubset(of_group)}
    modules = {module.group for rank in trace.ranks.values() for module in rank.modules}
    reducing = [name for name in by_group if Pattern.ALL_REDUCE in patterns[name]]
    modules |= {name for name in reducing if all(call.phase != "forward" for call in by_group[name])}
    if not (grown := world | ((by_group.keys() & modules) - world - sharded or sharded - world)):
        if messages and not by_group:
            sentence = "the pipeline gets more stages, each like the recorded ones"
            return Growth(stages=True, most=_MOST_STAGES, assumed=(sentence,))
        raise LabError(
            "cannot project this run: none of its groups is data parallel, so no group is known to grow",
            "a group grows if it has all ranks, if it reduces gradients outside of forward, or if FSDP shards over it",
        )
    kept, sharded = by_group.keys() - grown, sharded & grown
    replica = 1
    if kept or messages or world != grown:  # one rank of each growing group is not the whole replica
        sizes = [len(call.ranks) for name in grown for call in by_group[name] if len(call.ranks) < program.ranks]
        replica = program.ranks // max(sizes, default=1)
    titles = sorted({trace.groups[name].label if name in trace.groups else name for name in grown})
    named = ", ".join(titles[:3]) + (" and others" if len(titles) > 3 else "")
    others = [format_count(len(kept), "other group")] * bool(kept) + ["the pipeline"] * messages
    assumed = (
        (True, f"data parallel groups grow with the world ({named}); the batch of each rank stays the same"),
        (
            sharded,
            "parameters are sharded over all of their ranks: the more ranks, the smaller a rank's shard and the work "
            "of its optimizer",
        ),
        (
            any(patterns[name] & _GROWING for name in grown - sharded),
            "in other gathers and scatters, each rank contributes as much as recorded, so the total grows",
        ),
        (others, f"{join_words(others)} keep their size, and their number grows"),
    )
    sentences = tuple(sentence for holds, sentence in assumed if holds)
    return Growth(frozenset(grown), frozenset(sharded), replica, assumed=sentences)


FORWARD, BACKWARD = "F", "B"
_ENDS = (OPTIMIZER, "zero_grad")
Order = list[tuple[str, int]]


def one_forward_one_backward(stage: int, stages: int, batches: int) -> Order:
    """Return the order of 1F1B: a forward for each later stage, then one of each in turn, then the other backwards."""
    ahead = min(batches, stages - 1 - stage)
    order = [(FORWARD, number) for number in range(ahead)]
    for number in range(batches - ahead):
        order += [(FORWARD, ahead + number), (BACKWARD, number)]
    return order + [(BACKWARD, number) for number in range(batches - ahead, batches)]


def all_forwards_first(_stage: int, _stages: int, batches: int) -> Order:
    """Return the order of GPipe."""
    return [(kind, number) for kind in (FORWARD, BACKWARD) for number in range(batches)]


SCHEDULES = {"1F1B": one_forward_one_backward, "GPipe": all_forwards_first}


def schedule_of(program: Program) -> tuple[str, int]:
    """Return the schedule of a pipeline, and the number of its micro-batches.

    Raises:
        LabError: Its ranks exchange messages in another order than the known schedules.
    """
    ranks = sorted(program.turns)
    batches = sum(one.ranks == (*ranks[:2],) for one in program.transfers.values())
    recorded = [_messages(program.turns[rank][0], program.transfers, ranks) for rank in ranks]
    for schedule in SCHEDULES if batches else ():
        turns, transfers = with_stages(program, schedule, batches, len(ranks))
        if [_messages(steps[0], transfers, range(len(ranks))) for steps in turns.values()] == recorded:
            return schedule, batches
    hint = "the lab can add stages only if each stage waits for its messages in recv, where it needs them"
    raise LabError("cannot project this run: the order of its ranks' messages is neither 1F1B nor GPipe", hint)


def _messages(actions: Iterable[Action], moves: Mapping[Key, Transfer], ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the sender and receiver of each message of a stage, in order, as stages."""
    begun = (moves[action.key] for action in actions if isinstance(action, Begin))
    return [tuple(map(ranks.index, transfer.ranks)) for transfer in begun]


def with_stages(
    program: Program, schedule: str, batches: int, stages: int
) -> tuple[dict[int, list[list[Action]]], dict[Key, Transfer]]:
    """Return the programs and transfers of a pipeline with `stages` stages; steps by stage, as in `Program.turns`."""
    sample = next(iter(program.transfers.values()))
    transfers: dict[Key, Transfer] = {}

    def message(sender: int, receiver: int, number: int) -> Key:
        key = Key(f"{sender}>{receiver}", number)
        transfers[key] = Transfer(sample.op, (sender, receiver), sample.size, sample.group, "")
        return key

    def step_of(stage: int, recorded: Sequence[Action]) -> list[Action]:
        work, is_blocking = _work_of(recorded, batches)
        actions: list[Action] = []
        sends: list[Action] = []
        for kind, number in SCHEDULES[schedule](stage, stages, batches):
            way = 1 if kind == FORWARD else -1
            if 0 <= stage - way < stages:
                key = message(stage - way, stage, number)
                actions += [Begin(key), Wait(key)]
            actions.append(work[kind])
            if 0 <= stage + way < stages:
                key = message(stage, stage + way, number)
                actions.append(Begin(key))
                (actions if is_blocking else sends).append(Wait(key))
        return [*actions, *sends, work[OPTIMIZER]]

    turns, ranks = {}, sorted(program.turns)
    last = len(ranks) - 1
    for stage in range(stages):  # each copies a recorded stage; without a recorded middle stage, the first
        model = 0 if stage == 0 else last if stage == stages - 1 else 1 + (stage - 1) % (last - 1) if last > 1 else 0
        turns[stage] = [step_of(stage, recorded) for recorded in program.turns[ranks[model]]]
    return turns, transfers


def _work_of(actions: Sequence[Action], batches: int) -> tuple[dict[str, Work], bool]:
    """Return the work of a recorded stage in one step by kind, and whether it waits for a message right after the send.

    Forward and backward are averages of the micro-batches.
    """
    sums = {FORWARD: Work(0.0, ""), BACKWARD: Work(0.0, ""), OPTIMIZER: Work(0.0, OPTIMIZER)}
    for action in actions:
        if isinstance(action, Work):
            kind = BACKWARD if action.phase == "backward" else OPTIMIZER if action.phase in _ENDS else FORWARD
            sums[kind] = sums[kind].plus(action)
    if not sums[BACKWARD].whole_s:  # no phase was recorded; backward takes about twice as long as forward
        sums[FORWARD], sums[BACKWARD] = sums[FORWARD].times(1 / 3), sums[FORWARD].times(2 / 3)
    waited = {(one.key, type(other)) for one, other in pairwise(actions) if isinstance(one, Begin)}
    is_blocking = bool(waited) and all((key, Wait) in waited for key, _ in waited)
    return {kind: work if kind == OPTIMIZER else work.times(1 / batches) for kind, work in sums.items()}, is_blocking
