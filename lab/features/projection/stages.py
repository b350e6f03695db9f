"""A pipeline with more stages: programs of stages that are not on record, from those that are.

What a stage does for a micro-batch is what stages of its place (the first, one in the middle, the last) did on record;
in which order it does so is the schedule's, which has to be one that is known and that every stage on record kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lab.errors import LabError
from lab.features.projection.actions import Action, Begin, Key, Transfer, Wait, Work
from lab.features.projection.program import OPTIMIZER, Program

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
