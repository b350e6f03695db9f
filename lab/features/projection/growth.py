"""How a run becomes larger: which groups grow, what their calls then carry, and pipelines with more stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lab.errors import LabError
from lab.features.projection.costs import Pattern, pattern_of
from lab.features.projection.program import OPTIMIZER, Program
from lab.features.projection.replay import Action, Begin, Key, Transfer, Wait, Work
from lab.operations import operation
from lab.trace.model import Trace
from lab.words import plural

_MOST_STAGES = 512
"""Deeper pipelines are not built, and would take long to replay."""
_SHARDING = {Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER}
_GROWING = {Pattern.ALL_GATHER, Pattern.PARTS}
"""What carries more in a larger group, as each rank brings as much as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What grows."""

    groups: frozenset[str] = frozenset()
    """Names of the groups that grow with the world."""
    sharded: frozenset[str] = frozenset()
    """Of them, those over which parameters are sharded."""
    replica: int = 1
    """Ranks that are there together or not at all: a larger world has a multiple of them."""
    most: int = 1 << 20
    """Ranks beyond which nothing is said."""
    stages: bool = False
    """Whether it is a pipeline that gets more stages."""
    assumed: tuple[str, ...] = ()
    """What is taken for granted, a sentence each."""

    def size(self, transfer: Transfer, factor: float) -> float:
        """What a transfer carries in a world so many times as large, as nccl-tests counts it."""
        if transfer.group not in self.groups or transfer.group in self.sharded:
            return transfer.size
        return transfer.size * (factor if pattern_of(operation(transfer.op)) in _GROWING else 1.0)

    def work(self, phase: str, factor: float) -> float:
        """By what own work is multiplied: the optimizer has only its shard."""
        return 1 / factor if self.sharded and phase == OPTIMIZER else 1.0


def growth_of(program: Program, trace: Trace) -> Growth:
    """What grows when a run gets more ranks.

    Raises:
        LabError: nothing of it is data parallel, and it is no pipeline either.
    """
    by_group: dict[str, list[Transfer]] = defaultdict(list)
    messages = False
    for transfer in program.transfers.values():
        if pattern_of(operation(transfer.op)) is Pattern.MESSAGE:
            messages = True
        else:
            by_group[transfer.group].append(transfer)
    patterns = {name: {pattern_of(operation(call.op)) for call in calls} for name, calls in by_group.items()}
    world = {name for name, calls in by_group.items() if len(calls[0].ranks) == program.ranks}
    sharded = {name for name, of_group in patterns.items() if _SHARDING.issubset(of_group)}
    modules = {module.group for rank in trace.ranks.values() for module in rank.modules}
    reducing = {
        name
        for name in by_group.keys() - world - sharded
        if name in modules
        or (Pattern.ALL_REDUCE in patterns[name] and all(call.phase != "forward" for call in by_group[name]))
    }
    grown = world | (reducing or sharded - world)
    if not grown:
        if messages and not by_group:
            return Growth(
                stages=True, most=_MOST_STAGES, assumed=("the pipeline gets more stages, each like those on record",)
            )
        raise LabError(
            "this run cannot be projected: none of its groups is data parallel, so none is known to grow",
            "a group grows that has all ranks, that reduces gradients outside of forward, or over which FSDP shards",
        )
    kept, sharded = by_group.keys() - grown, sharded & grown
    replica = 1
    if kept or messages or world != grown:  # all that one rank of each growing group does not count
        sizes = [len(call.ranks) for name in grown for call in by_group[name] if len(call.ranks) < program.ranks]
        replica = program.ranks // max(sizes) if sizes else program.ranks
    titles = sorted({trace.groups[name].label if name in trace.groups else name for name in grown})
    named = ", ".join(titles[:3]) + (" and others" if len(titles) > 3 else "")
    assumed = [f"data parallel groups grow with the world ({named}); each rank's batch stays as large as it is"]
    if sharded:
        assumed.append(
            "parameters are sharded over all of their ranks: the bytes of all shards together stay, a rank's shard and "
            "the work of its optimizer shrink"
        )
    if any(patterns[name] & _GROWING for name in grown - sharded):
        assumed.append("what is gathered or scattered otherwise has as much of each rank as on record, so more in all")
    if kept or messages:
        what = [plural(len(kept), "other group")] * bool(kept) + ["the pipeline"] * messages
        assumed.append(f"{' and '.join(what)} stay as they are, and there are more of them")
    return Growth(groups=frozenset(grown), sharded=frozenset(sharded), replica=replica, assumed=tuple(assumed))


FORWARD, BACKWARD = "F", "B"
_ENDS = (OPTIMIZER, "zero_grad")
Order = list[tuple[str, int]]


def one_forward_one_backward(stage: int, stages: int, batches: int) -> Order:
    """1F1B: as many forwards as there are stages behind, then one of each in turn, then the backwards that are left."""
    ahead = min(batches, stages - 1 - stage)
    order = [(FORWARD, number) for number in range(ahead)]
    for number in range(batches - ahead):
        order += [(FORWARD, ahead + number), (BACKWARD, number)]
    return order + [(BACKWARD, number) for number in range(batches - ahead, batches)]


def all_forwards_first(_stage: int, _stages: int, batches: int) -> Order:
    """GPipe."""
    return [(kind, number) for kind in (FORWARD, BACKWARD) for number in range(batches)]


SCHEDULES = {"1F1B": one_forward_one_backward, "GPipe": all_forwards_first}


class Pipeline(NamedTuple):
    """A pipeline on record."""

    schedule: str
    batches: int
    ranks: tuple[int, ...]
    """By stage."""


def pipeline_of(program: Program) -> Pipeline:
    """What kind of pipeline it is.

    Raises:
        LabError: its ranks send messages otherwise than a pipeline does whose schedule is known.
    """
    ranks = tuple(sorted(program.turns))
    count = sum(one.ranks == ranks[:2] for one in program.transfers.values())
    for name, order in SCHEDULES.items():
        if all(
            _recorded_ways(program, ranks, stage) == _expected_ways(stage, len(ranks), order(stage, len(ranks), count))
            for stage in range(len(ranks))
        ):
            return Pipeline(name, count, ranks)
    raise LabError(
        "this run cannot be projected: its ranks exchange messages, in an order that is neither 1F1B nor GPipe",
        "a pipeline whose stages wait for each message where they need it, by recv, can be given more stages",
    )


def _recorded_ways(program: Program, ranks: Sequence[int], stage: int) -> list[str]:
    """What a stage sends and receives, in order: `<f` from the stage before, `f>` to the next; `<b`, `b>` backwards."""
    ways = []
    for action in program.turns[ranks[stage]][0]:
        if isinstance(action, Begin):
            sender, receiver = map(ranks.index, program.transfers[action.key].ranks)
            if abs(sender - receiver) != 1:
                return []
            way = "f" if receiver > sender else "b"
            ways.append(f"{way}>" if sender == stage else f"<{way}")
    return ways


def _expected_ways(stage: int, stages: int, order: Order) -> list[str]:
    first, last = stage == 0, stage == stages - 1
    ways = {
        FORWARD: ["<f"] * (not first) + ["f>"] * (not last),
        BACKWARD: ["<b"] * (not last) + ["b>"] * (not first),
    }
    return [way for kind, _ in order for way in ways[kind]]


def with_stages(
    program: Program, pipeline: Pipeline, stages: int
) -> tuple[dict[int, list[list[Action]]], dict[Key, Transfer]]:
    """The programs and transfers of a pipeline with so many stages: steps by stage, as `Program.turns` has them."""
    sample = next(iter(program.transfers.values()))
    transfers: dict[Key, Transfer] = {}

    def message(sender: int, receiver: int, number: int) -> Key:
        key = Key(f"{sender}>{receiver}", number)
        transfers[key] = Transfer(sample.op, (sender, receiver), sample.size, sample.group, "")
        return key

    def step_of(stage: int, recorded: Sequence[Action]) -> list[Action]:
        work, is_blocking = _work_of(recorded, pipeline.batches)
        actions: list[Action] = []
        sends: list[Action] = []
        for kind, number in SCHEDULES[pipeline.schedule](stage, stages, pipeline.batches):
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

    turns = {}
    last = len(pipeline.ranks) - 1
    for stage in range(stages):  # each is like one on record: in the middle, if none is on record, like the first
        model = 0 if stage == 0 else last if stage == stages - 1 else 1 + (stage - 1) % (last - 1) if last > 1 else 0
        turns[stage] = [step_of(stage, recorded) for recorded in program.turns[pipeline.ranks[model]]]
    return turns, transfers


def _work_of(actions: Sequence[Action], batches: int) -> tuple[dict[str, Work], bool]:
    """What a stage on record took for what in one step, and whether it waits for a message that it sends at once.

    Of forward and backward, what a micro-batch takes on average.
    """
    sums = {FORWARD: Work(0.0, ""), BACKWARD: Work(0.0, ""), OPTIMIZER: Work(0.0, OPTIMIZER)}
    for action in actions:
        if isinstance(action, Work):
            kind = BACKWARD if action.phase == "backward" else OPTIMIZER if action.phase in _ENDS else FORWARD
            sums[kind] = sums[kind].plus(action)
    if not sums[BACKWARD].whole_s:  # no mark tells it; it takes about twice as long as forward
        sums[FORWARD], sums[BACKWARD] = sums[FORWARD].times(1 / 3), sums[FORWARD].times(2 / 3)
    waited = {(one.key, type(other)) for one, other in pairwise(actions) if isinstance(one, Begin)}
    is_blocking = bool(waited) and all((key, Wait) in waited for key, _ in waited)
    return {kind: work if kind == OPTIMIZER else work.times(1 / batches) for kind, work in sums.items()}, is_blocking
