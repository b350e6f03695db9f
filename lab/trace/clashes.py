"""Where ranks met in one step with different calls: another operation, dtype, shape, reduction, root, or split.

Only what an operation requires to be equal is compared. A rank is the odd one out if more than half of the ranks that
came to the step agree on something else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lab.operations import Cut, Who
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that one rank gives to another, or to itself, and that do not fill the room which that one has for them."""

    giver: int
    taker: int
    rows: int
    room: int


class Clash(NamedTuple):
    """A step in which ranks do not agree."""

    kind: str
    """`mismatch` (the operation), `dtype`, `shape`, `reduce_op`, `root`, `splits`."""
    step: Step
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    """What was called or brought, and by whom; the side of most ranks comes first."""
    misfits: tuple[Misfit, ...] = ()
    """Of splits: each that does not fit the one that it has to fit."""

    @property
    def odd(self) -> tuple[int, ...]:
        """Ranks that differ from what more than half did; empty where there is no such majority.

        Splits may rightly differ: there it is the only rank that is in every misfit, or the only one at odds with
        itself.
        """
        if self.misfits:
            in_all = set.intersection(*({one.giver, one.taker} for one in self.misfits))
            with_itself = {one.giver for one in self.misfits if one.giver == one.taker}
            return next((tuple(ranks) for ranks in (in_all, with_itself) if len(ranks) == 1), ())
        total = sum(len(ranks) for _, ranks in self.sides)
        if 2 * len(self.sides[0][1]) <= total:
            return ()
        return tuple(sorted(rank for _, ranks in self.sides[1:] for rank in ranks))

    @property
    def comparable(self) -> bool:
        """Whether it is plain all the same what ranks should have got: of each element what all have brought for it."""
        op = self.step.operation
        return self.kind == "shape" and op.cut is Cut.WHOLE and not op.joined


def find_clashes(steps: Iterable[Step]) -> list[Clash]:
    """Every step whose ranks differ, in order; in each group none after the first with different operations.

    After that the calls of the group's ranks are no longer the same ones, and differ for that reason.
    """
    found: list[Clash] = []
    apart: set[str] = set()
    for step in steps:
        clash = clash_in(step) if len(step.calls) > 1 and step.group.name not in apart else None
        if clash is not None:
            found.append(clash)
            if clash.kind == "mismatch":
                apart.add(step.group.name)
    return found


def clash_in(step: Step) -> Clash | None:
    """In what the calls of a step do not fit each other; a backend may then do anything. None where they fit."""
    if step.message:
        return _clash_of_message(step)
    if len({call.op for call in step.calls.values()}) > 1:
        return _clash("mismatch", step, lambda call: call.op)
    op = step.operation
    clash = _clash("root", step, lambda call: "" if call.root is None else f"root {call.root}") if op.rooted else None
    if clash is None and op.reduces:
        clash = _clash("reduce_op", step, lambda call: call.reduce_op)
    clash = clash or _clash("dtype", step, _dtype, brought)
    if clash is not None or not op.moves_data:
        return clash
    if op.cut is Cut.SPLITS:
        return _clash_of_splits(step)
    if op.alike or not _fits(step):
        return _clash("shape", step, lambda call: str([b.count for b in _own(call)]), brought)
    return None


def brought(call: Call) -> str:
    """The tensors of a call in words: `float32 [4]`, `float32 [4] ×3`."""
    words = [f"{buffer.dtype} {list(buffer.shape)}" for buffer in _own(call) or call.own]
    if len(words) > 1 and len(set(words)) == 1:
        return f"{words[0]} ×{len(words)}"
    return ", ".join(words[:4]) + (", …" if len(words) > 4 else "") or "nothing"


def _clash(
    kind: str,
    step: Step,
    key: Callable[[Call], str],
    words: Callable[[Call], str] | None = None,
    misfits: tuple[Misfit, ...] = (),
) -> Clash | None:
    """The sides of those who are alike by a key, the most ranks first; None where there is but one. Empty: no side."""
    sides: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for rank, call in sorted(step.calls.items()):
        if value := key(call):
            sides[value].append(rank)
            said.setdefault(value, words(call) if words else value)
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1]))
    found = tuple((said[value], tuple(ranks)) for value, ranks in ordered)
    return Clash(kind, step, found, misfits) if misfits or len(found) > 1 else None


def _dtype(call: Call) -> str:
    """The dtypes of all tensors that a call takes and gives; empty for one that brings none."""
    return ", ".join(sorted({buffer.dtype for buffer in (*call.inputs, *call.outputs)}))


def _own(call: Call) -> tuple[Buffer, ...]:
    """The tensors of a call that are the rank's own part: of what one rank deals out, what each gets."""
    deals = call.operation.giver is Who.ROOT and call.operation.cut is not Cut.WHOLE
    return call.outputs if deals else call.inputs


def _fits(step: Step) -> bool:
    """Whether every tensor that a rank gives another is as large as what that one has made room for."""
    op = step.operation
    if op.cut not in (Cut.WHOLE, Cut.TENSORS):
        return True
    members = {rank: position for position, rank in enumerate(step.group.ranks)}
    for giver, given in step.calls.items():
        for taker, taken in step.calls.items():
            here, there = members.get(giver, 0), members.get(taker, 0)
            gives = given.inputs if op.cut is Cut.WHOLE else given.inputs[there : there + 1]
            first = 0 if op.giver is Who.ROOT else here * len(gives)
            room = taken.outputs[first : first + len(gives)]
            if any(one.count != other.count for one, other in zip(gives, room, strict=False)):
                return False
    return True


def _clash_of_splits(step: Step) -> Clash | None:
    """Ranks whose input split does not fit the output split of somebody."""

    def rows(call: Call) -> list[list[int]]:
        return [slice_rows(call, len(step.group.ranks), of_output=of_output) for of_output in (True, False)]

    ranks = step.group.ranks
    splits = {place: rows(step.calls[rank]) for place, rank in enumerate(ranks) if rank in step.calls}
    misfits = tuple(
        Misfit(ranks[here], ranks[there], gives[there], takes[here])
        for here, (_, gives) in splits.items()
        for there, (takes, _) in splits.items()
        if gives[there] != takes[here]
    )
    words = "output {}, input {}"
    return _clash("splits", step, lambda call: words.format(*rows(call)), misfits=misfits) if misfits else None


def slice_rows(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Rows that go to or come from each rank, as its splits say; without splits all are alike."""
    buffers = call.outputs if of_output else call.inputs
    splits = call.splits[0 if of_output else 1] if call.splits else ()
    rows = buffers[0].shape[0] if buffers and buffers[0].shape else 0
    return list(splits) if len(splits) == world_size else [rows // world_size] * world_size


def _clash_of_message(step: Step) -> Clash | None:
    sent = next((call.inputs for call in step.calls.values() if call.operation.sends), ())
    received = next((call.outputs or call.inputs for call in step.calls.values() if call.operation.receives), ())
    if not sent or not received or (sent[0].dtype, sent[0].count) == (received[0].dtype, received[0].count):
        return None
    kind = "dtype" if sent[0].dtype != received[0].dtype else "shape"
    return _clash(kind, step, lambda call: call.op, brought)
