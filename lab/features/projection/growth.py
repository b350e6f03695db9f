"""How a run becomes larger: which groups grow, what their calls then carry, and pipelines with more stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
        pattern = pattern_of(operation(transfer.op))
        return transfer.size * (factor if pattern in (Pattern.ALL_GATHER, Pattern.PARTS) else 1.0)

    def work(self, phase: str, factor: float) -> float:
        """By what own work is multiplied: the optimizer has only its shard."""
        return 1 / factor if self.sharded and phase == OPTIMIZER else 1.0


def growth_of(program: Program, trace: Trace) -> Growth:
    """What grows when a run gets more ranks.

    Raises:
        LabError: nothing of it is data parallel, and it is no pipeline either.
    """
    messages = {key: one for key, one in program.transfers.items() if _is_message(one)}
    by_group: dict[str, list[Transfer]] = defaultdict(list)
    for key, transfer in program.transfers.items():
        if key not in messages:
            by_group[transfer.group].append(transfer)
    world = {name for name, calls in by_group.items() if len(calls[0].ranks) == program.ranks}
    patterns = {name: {pattern_of(operation(call.op)) for call in calls} for name, calls in by_group.items()}
    sharded = {name for name, found in patterns.items() if _SHARDING.issubset(found)}
    reducing = {name for name in by_group.keys() - world - sharded if _reduces(name, by_group[name], trace)}
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
    kept = {name: calls for name, calls in by_group.items() if name not in grown}
    replica = 1 if world == grown and not messages and not kept else _replica(program, grown)
    return Growth(
        groups=frozenset(grown),
        sharded=frozenset(sharded & grown),
        replica=replica,
        assumed=tuple(_assumed(program, trace, grown, sharded & grown, kept, bool(messages))),
    )


def _is_message(transfer: Transfer) -> bool:
    return pattern_of(operation(transfer.op)) is Pattern.MESSAGE


def _reduces(name: str, calls: list[Transfer], trace: Trace) -> bool:
    if any(module.group == name for rank in trace.ranks.values() for module in rank.modules):
        return True
    return any(
        pattern_of(operation(call.op)) is Pattern.ALL_REDUCE and call.phase != "forward" for call in calls
    ) and all(call.phase != "forward" for call in calls)


def _replica(program: Program, grown: set[str]) -> int:
    """Ranks of a copy of what does not grow: all that one rank of each growing group does not count."""
    sizes = [len(one.ranks) for one in program.transfers.values() if one.group in grown]
    smaller = [size for size in sizes if size < program.ranks]
    return program.ranks // max(smaller) if smaller else program.ranks


def _assumed(
    program: Program,
    trace: Trace,
    grown: set[str],
    sharded: set[str],
    kept: Mapping[str, list[Transfer]],
    messages: bool,
) -> list[str]:
    def named(groups: set[str]) -> str:
        titles = sorted({trace.groups[name].label if name in trace.groups else name for name in groups})
        return ", ".join(titles[:3]) + (" and others" if len(titles) > 3 else "")

    said = [f"data parallel groups grow with the world ({named(grown)}); each rank's batch stays as large as it is"]
    if sharded:
        said.append(
            "parameters are sharded over all of their ranks: the bytes of all shards together stay, a rank's shard and "
            "the work of its optimizer shrink"
        )
    others = [
        one
        for one in program.transfers.values()
        if one.group in grown - sharded and pattern_of(operation(one.op)) in (Pattern.ALL_GATHER, Pattern.PARTS)
    ]
    if others:
        said.append("what is gathered or scattered otherwise has as much of each rank as on record, so more in all")
    if kept or messages:
        what = [plural(len(kept), "other group")] if kept else []
        what += ["the pipeline"] if messages else []
        said.append(f"{' and '.join(what)} stay as they are, and there are more of them")
    return said


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
    forwards = {key for key, one in program.transfers.items() if one.ranks == (ranks[0], ranks[1])}
    for name, order in SCHEDULES.items():
        if all(
            _tokens(program, ranks, stage) == _expected(stage, len(ranks), order(stage, len(ranks), len(forwards)))
            for stage in range(len(ranks))
        ):
            return Pipeline(name, len(forwards), ranks)
    raise LabError(
        "this run cannot be projected: its ranks exchange messages, in an order that is neither 1F1B nor GPipe",
        "a pipeline whose stages wait for each message where they need it, by recv, can be given more stages",
    )


def _ways(transfer: Transfer, ranks: Sequence[int]) -> tuple[int, int]:
    sender, receiver = transfer.ranks
    return ranks.index(sender), ranks.index(receiver)


def _tokens(program: Program, ranks: Sequence[int], stage: int) -> list[str]:
    """What a stage sends and receives, in order: `<f` from the stage before, `f>` to the next; `<b`, `b>` backwards."""
    found = []
    for action in program.turns[ranks[stage]][0]:
        if not isinstance(action, Begin):
            continue
        sender, receiver = _ways(program.transfers[action.key], ranks)
        if abs(sender - receiver) != 1:
            return []
        way = "f" if receiver > sender else "b"
        found.append(f"{way}>" if sender == stage else f"<{way}")
    return found


def _expected(stage: int, stages: int, order: Order) -> list[str]:
    found = []
    for kind, _ in order:
        if kind == FORWARD:
            found += ["<f"] * (stage > 0) + ["f>"] * (stage < stages - 1)
        else:
            found += ["<b"] * (stage < stages - 1) + ["b>"] * (stage > 0)
    return found


def with_stages(
    program: Program, pipeline: Pipeline, stages: int
) -> tuple[dict[int, list[list[Action]]], dict[Key, Transfer]]:
    """The programs and transfers of a pipeline with so many stages: steps by stage, as `Program.turns` has them."""
    sample = next(iter(program.transfers.values()))
    transfers: dict[Key, Transfer] = {}
    turns: dict[int, list[list[Action]]] = {}
    for stage in range(stages):
        model = _model(stage, stages, pipeline)
        turns[stage] = [
            _stage(stage, stages, pipeline, _taken(steps, pipeline.batches), transfers, sample)
            for steps in program.turns[pipeline.ranks[model]]
        ]
    return turns, transfers


def _model(stage: int, stages: int, pipeline: Pipeline) -> int:
    """The stage on record that one is like; where none in the middle is on record, the first: it has no loss."""
    last = len(pipeline.ranks) - 1
    if stage == 0:
        return 0
    if stage == stages - 1:
        return last
    return 1 + (stage - 1) % (last - 1) if last > 1 else 0


class _Taken(NamedTuple):
    """What a stage on record took for what, in one step."""

    forward: Work
    """Of a micro-batch, mean."""
    backward: Work
    optimizer: Work
    blocking: bool
    """Whether it waits for a message that it sends at once."""


def _taken(actions: Sequence[Action], batches: int) -> _Taken:
    sums = {FORWARD: Work(0.0, ""), BACKWARD: Work(0.0, ""), OPTIMIZER: Work(0.0, OPTIMIZER)}
    for action in actions:
        if isinstance(action, Work):
            kind = BACKWARD if action.phase == "backward" else OPTIMIZER if action.phase in _ENDS else FORWARD
            sums[kind] = sums[kind].plus(action)
    if not sums[BACKWARD].whole_s:  # no mark tells it; it takes about twice as long as forward
        sums[FORWARD], sums[BACKWARD] = sums[FORWARD].times(1 / 3), sums[FORWARD].times(2 / 3)
    waited = {(one.key, type(other)) for one, other in pairwise(actions) if isinstance(one, Begin)}
    begun = {key for key, _ in waited}
    blocking = bool(begun) and all((key, Wait) in waited for key in begun)
    return _Taken(sums[FORWARD].times(1 / batches), sums[BACKWARD].times(1 / batches), sums[OPTIMIZER], blocking)


def _stage(
    stage: int, stages: int, pipeline: Pipeline, taken: _Taken, transfers: dict[Key, Transfer], sample: Transfer
) -> list[Action]:
    actions: list[Action] = []
    sends: list[Key] = []

    def message(sender: int, receiver: int, number: int) -> Key:
        key = Key(f"{sender}>{receiver}", number)
        transfers[key] = Transfer(sample.op, (sender, receiver), sample.size, sample.group, "")
        return key

    def receive(sender: int, number: int) -> None:
        key = message(sender, stage, number)
        actions.extend([Begin(key), Wait(key)])

    def send(receiver: int, number: int) -> None:
        key = message(stage, receiver, number)
        actions.append(Begin(key))
        if taken.blocking:
            actions.append(Wait(key))
        else:
            sends.append(key)

    for kind, number in SCHEDULES[pipeline.schedule](stage, stages, pipeline.batches):
        way = 1 if kind == FORWARD else -1
        if 0 <= stage - way < stages:
            receive(stage - way, number)
        actions.append(taken.forward if kind == FORWARD else taken.backward)
        if 0 <= stage + way < stages:
            send(stage + way, number)
    return [*actions, *(Wait(key) for key in sends), taken.optimizer]
