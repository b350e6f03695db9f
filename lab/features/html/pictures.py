"""Which steps get a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.features.pictures.model import picture_of
from lab.trace.steps import Step

MOST_PICTURES = 200
_MOST_BLOCKS = 51_200
"""Of all pictures together, as 200 pictures of 64 ranks have: a run of 1,000 ranks has fewer pictures."""
_MOST_OF_ONE_SORT = {"broken": 60, "wrong": 60, "late": 20}
_MOST_COMPARED = 2000
"""At most this many steps with values are searched for wrong results."""


def choose(steps: Sequence[Step], most: int = MOST_PICTURES) -> list[Step]:
    """The steps that tell most: broken ones, wrong results, the first of each kind, the longest waits.

    What room is left is for the first ones.
    """
    blocks = {step.number: _count_blocks(step) for step in steps}
    if len(steps) <= most and sum(blocks.values()) <= _MOST_BLOCKS:
        return list(steps)
    chosen: set[int] = set()
    left = _MOST_BLOCKS
    for step in _by_interest(steps):
        if len(chosen) == most:
            break
        if step.number not in chosen and blocks[step.number] <= left:
            left -= blocks[step.number]
            chosen.add(step.number)
    return [step for step in steps if step.number in chosen]


def _count_blocks(step: Step) -> int:
    """What a picture draws: the ranks, and their tensors before and after."""
    ranks = 0 if step.message else len(step.group.ranks)
    return ranks + sum(1 + len(call.inputs) + len(call.outputs) for call in step.calls.values())


def _by_interest(steps: Sequence[Step]) -> Iterator[Step]:
    broken = [step for step in steps if step.state != "completed"]
    yield from broken[: _MOST_OF_ONE_SORT["broken"]]
    yield from _wrong(steps)
    first: dict[tuple[object, ...], Step] = {}
    for step in steps:
        first.setdefault(kind_of(step), step)
    yield from first.values()
    late = sorted(steps, key=lambda step: -max(step.waited.values(), default=0.0))
    yield from late[: _MOST_OF_ONE_SORT["late"]]
    yield from steps


def _wrong(steps: Sequence[Step]) -> list[Step]:
    """Steps whose result is not what the operation makes of the recorded inputs."""
    kept = [step for step in steps if any(b.values is not None for call in step.calls.values() for b in call.outputs)]
    wrong = [step for step in kept[:_MOST_COMPARED] if picture_of(step).check == "wrong"]
    return wrong[: _MOST_OF_ONE_SORT["wrong"]]


def kind_of(step: Step) -> tuple[object, ...]:
    """Steps of one kind do the same at the same line of the script, with other values."""
    call = next(iter(step.calls.values()))
    return step.op, step.group.name, call.source, call.bytes, step.source, step.destination, step.state


def stand_ins(steps: Sequence[Step], drawn: Sequence[Step]) -> list[int]:
    """For each step the number of the step whose picture shows it best: itself, one of its kind, or 0."""
    own = {step.number for step in drawn}
    of_kind: dict[tuple[object, ...], int] = {}
    for step in drawn:
        of_kind.setdefault(kind_of(step), step.number)
    return [step.number if step.number in own else of_kind.get(kind_of(step), 0) for step in steps]
