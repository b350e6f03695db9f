"""Find steps in which the calls of ranks do not fit together.

They differ in the operation, dtype, shape, reduction, root, or splits. Only what an operation requires to be equal is
compared. A rank deviates if more than half of the ranks in the step agree on something else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.operations import Cut, Who
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that one rank sends to another, or to itself, and that differ from the rows that the receiver expects."""

    giver: int
    taker: int
    rows: int
    expected_rows: int = field(metadata={"key": "room"})


class Clash(NamedTuple):
    """A step whose calls do not fit together."""

    kind: str
    """`mismatch` (the operation), `dtype`, `shape`, `reduce_op`, `root`, `splits`."""
    step: Step
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    """What was called or passed, and by which ranks; the side with most ranks comes first."""
    misfits: tuple[Misfit, ...] = ()
    """For splits: each pair that does not match."""

    @property
    def deviating_ranks(self) -> tuple[int, ...]:
        """Ranks that differ from more than half of the ranks; empty without such a majority.

        Splits may legally differ. There it is the only rank that is part of every misfit, or the only rank whose own
        splits contradict each other.
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
        """Whether the expected results are still defined: each element has inputs from all ranks."""
        op = self.step.operation
        return self.kind == "shape" and op.cut is Cut.WHOLE and not op.joined


def find_clashes(steps: Iterable[Step]) -> list[Clash]:
    """Return the steps whose calls do not fit together, in order.

    In each group the first step with different operations is the last one reported: after it, the group's ranks are out
    of step, so later differences are only a consequence.
    """
    clashes: list[Clash] = []
    desynchronized: set[str] = set()
    for step in steps:
        clash = clash_in(step) if len(step.calls) > 1 and step.group.name not in desynchronized else None
        if clash is not None:
            clashes.append(clash)
            if clash.kind == "mismatch":
                desynchronized.add(step.group.name)
    return clashes


def clash_in(step: Step) -> Clash | None:
    """Return how the calls of a step contradict each other; None if they fit.

    If they do not fit, the behavior of a backend is undefined.
    """
    if step.message:
        return _clash_of_message(step)
    if len({call.op for call in step.calls.values()}) > 1:
        return _clash("mismatch", step, lambda call: call.op)
    op = step.operation
    clash = _clash("root", step, lambda call: "" if call.root is None else f"root {call.root}") if op.rooted else None
    if clash is None and op.reduces:
        clash = _clash("reduce_op", step, lambda call: call.reduce_op)
    clash = clash or _clash("dtype", step, _dtype, describe_tensors)
    if clash is not None or not op.moves_data:
        return clash
    if op.cut is Cut.SPLITS:
        return _clash_of_splits(step)
    if op.alike or not _fits(step):
        return _clash("shape", step, lambda call: str([b.count for b in _own(call)]), describe_tensors)
    return None


def describe_tensors(call: Call) -> str:
    """Describe the tensors of a call: `float32 [4]`, `float32 [4] ×3`."""
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
    """Group the ranks by a key, the largest group first; return None for a single group.

    A rank with an empty key belongs to no group.
    """
    if not misfits and len({*map(key, step.calls.values())}) == 1:  # the common case
        return None
    sides: dict[str, list[int]] = defaultdict(list)
    descriptions: dict[str, str] = {}
    for rank, call in sorted(step.calls.items()):
        if value := key(call):
            sides[value].append(rank)
            descriptions.setdefault(value, words(call) if words else value)
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1]))
    described = tuple((descriptions[value], tuple(ranks)) for value, ranks in ordered)
    return Clash(kind, step, described, misfits) if misfits or len(described) > 1 else None


def _dtype(call: Call) -> str:
    """Return the dtypes of all tensors of a call; empty for a call without tensors."""
    return ", ".join(sorted({buffer.dtype for buffer in (*call.inputs, *call.outputs)}))


def _own(call: Call) -> tuple[Buffer, ...]:
    """Return the tensors of the rank's own part.

    If an operation distributes parts, this is the part that each rank receives.
    """
    deals = call.operation.giver is Who.ROOT and call.operation.cut is not Cut.WHOLE
    return call.outputs if deals else call.inputs


def _fits(step: Step) -> bool:
    """Return whether each tensor that a rank sends has as many elements as the receiver's tensor for it."""
    op = step.operation
    if op.cut not in (Cut.WHOLE, Cut.TENSORS):
        return True
    members = {rank: position for position, rank in enumerate(step.group.ranks)}
    for giver, sent in step.calls.items():
        for taker, received in step.calls.items():
            here, there = members.get(giver, 0), members.get(taker, 0)
            parts = sent.inputs if op.cut is Cut.WHOLE else sent.inputs[there : there + 1]
            start = 0 if op.giver is Who.ROOT else here * len(parts)
            buffers = received.outputs[start : start + len(parts)]
            if any(one.count != other.count for one, other in zip(parts, buffers, strict=False)):
                return False
    return True


def _clash_of_splits(step: Step) -> Clash | None:
    """Return the ranks whose input split differs from the output split of the receiver."""

    def rows(call: Call) -> list[list[int]]:
        return [slice_rows(call, len(step.group.ranks), of_output=of_output) for of_output in (True, False)]

    ranks = step.group.ranks
    splits = {position: rows(step.calls[rank]) for position, rank in enumerate(ranks) if rank in step.calls}
    misfits = tuple(
        Misfit(ranks[here], ranks[there], sent[there], received[here])
        for here, (_, sent) in splits.items()
        for there, (received, _) in splits.items()
        if sent[there] != received[here]
    )
    words = "output {}, input {}"
    return _clash("splits", step, lambda call: words.format(*rows(call)), misfits=misfits) if misfits else None


def slice_rows(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Return the rows per rank in a call's splits; without splits, equal parts."""
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
    return _clash(kind, step, lambda call: call.op, describe_tensors)
