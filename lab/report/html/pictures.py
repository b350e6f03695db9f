"""Which steps get a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.report.picture.model import picture_of
from lab.trace.steps import Step

MOST_PICTURES = 200
_MOST_DRAWN_RANKS = 12_800
"""Ranks in all pictures together: a run of 1,000 ranks has fewer pictures than one of 64."""
_MOST_OF_ONE_SORT = {"broken": 60, "wrong": 60, "late": 20}
_MOST_COMPARED = 2000
"""At most this many steps with values are searched for wrong results."""


def choose(steps: Sequence[Step], most: int = MOST_PICTURES) -> list[Step]:
    """The steps that tell most: broken ones, wrong results, the first of each kind, the longest waits.

    What room is left is for the first ones.
    """
    if len(steps) <= most and sum(map(_drawn_ranks, steps)) <= _MOST_DRAWN_RANKS:
        return list(steps)
    chosen: dict[int, Step] = {}
    drawn_ranks = 0
    for step in _by_interest(steps):
        if step.number not in chosen:
            drawn_ranks += _drawn_ranks(step)
            if len(chosen) == most or (chosen and drawn_ranks > _MOST_DRAWN_RANKS):
                break
            chosen[step.number] = step
    return [step for step in steps if step.number in chosen]


def _drawn_ranks(step: Step) -> int:
    return len(step.calls) if step.message else len(step.group.ranks)


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
