"""Where each element of an output comes from, by the definition of the operation: arithmetic on sizes and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from lab.operations import Cut, Operation, Who
from lab.trace.model import Call
from lab.trace.steps import Step


@dataclass(frozen=True, slots=True)
class Source:
    """A run of elements of one input."""

    rank: int
    """Global rank."""
    tensor: int
    """Index into the inputs of that rank's call."""
    start: int
    """Its first element."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of elements of a tensor that come from the same place."""

    count: int
    sources: tuple[Source, ...] = ()
    """One: copied from there; several: reduced over them; none: the definition does not say what it holds."""
    reduced: bool = False
    """Whether it is the result of a reduction, even of one rank alone."""
    target: int | None = None
    """Of an input: the only rank that gets it; None where all do, or where the operation has but one receiver."""

    @property
    def origins(self) -> tuple[int, ...]:
        """Ranks that it comes from."""
        return tuple(source.rank for source in self.sources)


Rule = Callable[[Step, Call, int], tuple[Part, ...]]


def output_parts(step: Step, call: Call) -> tuple[tuple[Part, ...], ...]:
    """The parts of each output of one rank's call, in the order of their elements."""
    rule = RULES.get(call.op, _by_table)
    return tuple(
        rule(step, call, index) or (Part(output.count),)  # the definition leaves it open
        for index, output in enumerate(call.outputs)
    )


def input_parts(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """The parts of one input, each of which goes to another rank, or the whole where it is not dealt out."""
    count, ranks, cut = call.inputs[index].count, step.group.ranks, call.operation.cut
    if cut is Cut.TENSORS and index < len(ranks):
        return (Part(count, (Source(call.rank, index, 0),), target=ranks[index]),)
    sizes = slice_sizes(call, len(ranks), of_output=False) if cut is Cut.SPLITS else []
    if cut is Cut.SLICES and count % len(ranks) == 0:
        sizes = [count // len(ranks)] * len(ranks)
    if not sizes or sum(sizes) != count:
        return (Part(count, (Source(call.rank, index, 0),)),)
    starts = accumulate(sizes, initial=0)
    return tuple(
        Part(size, (Source(call.rank, index, start),), target=rank)
        for rank, size, start in zip(ranks, sizes, starts, strict=False)
    )


def _by_table(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """What the facts in the table of operations say."""
    op, count = call.operation, call.outputs[index].count
    if op.cut is Cut.SPLITS:
        return _by_splits(step, call, index)
    ranks, me = step.group.ranks, _place(step, call.rank)
    where = (me if op.cut is Cut.TENSORS else index, me * count if op.cut is Cut.SLICES else 0)
    nothing = op.cut is Cut.OTHER or op.sends or not op.moves_data
    if nothing or (op.taker is Who.ROOT and call.rank != call.root):
        return ()
    if op.giver is not Who.ALL:
        return () if call.giver is None else (Part(count, (Source(call.giver, *where),)),)
    if op.reduces and same_for_all(op):
        return step.remembered(("reduced", count, where), lambda: (_reduced(count, ranks, where),))
    if op.reduces:
        return (_reduced(count, ranks, where),)
    if op.joined:
        whole, rest = divmod(count, max(1, len(ranks)))
        return () if rest else step.remembered(("joined", whole, where), lambda: _joined(whole, ranks, where))
    # An output for each tensor of each rank; those of a rank stand together.
    each = max(1, len(call.inputs)) if op.cut is Cut.WHOLE else 1
    if index // each >= len(ranks):
        return ()
    tensor = index % each if op.cut is Cut.WHOLE else me
    return (Part(count, (Source(ranks[index // each], tensor, 0),)),)


def same_for_all(op: Operation) -> bool:
    """Whether every rank gets the same, made of what all give."""
    return op.cut is Cut.WHOLE and (op.reduces or op.joined)


def _reduced(count: int, ranks: Sequence[int], where: tuple[int, int]) -> Part:
    return Part(count, tuple(Source(rank, *where) for rank in ranks), reduced=True)


def _joined(count: int, ranks: Sequence[int], where: tuple[int, int]) -> tuple[Part, ...]:
    return tuple(Part(count, (Source(rank, *where),)) for rank in ranks)


def _by_splits(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    me = _place(step, call.rank)
    sizes = slice_sizes(call, len(step.group.ranks), of_output=True)
    if sum(sizes) != call.outputs[index].count:
        return ()
    parts = []
    for rank, size in zip(step.group.ranks, sizes, strict=True):
        starts = step.remembered(("starts", rank), lambda rank=rank: _starts(step, rank))  # type: ignore[misc]
        parts.append(Part(size, (Source(rank, index, starts[me] if starts else 0),)))
    return tuple(parts)


def _starts(step: Step, rank: int) -> list[int]:
    """Where each slice of what a rank gives begins; nothing where it never entered."""
    sender = step.calls.get(rank)
    if sender is None:
        return []
    return [*accumulate(slice_sizes(sender, len(step.group.ranks), of_output=False), initial=0)]


RULES: dict[str, Rule] = {}
"""By name: rules of operations whose line in the table does not say where their results come from."""


def _place(step: Step, rank: int) -> int:
    """The rank within the group."""
    return step.group.ranks.index(rank) if rank in step.group.ranks else 0


def slice_sizes(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Elements of each slice of an `all_to_all_single`."""
    buffers = call.outputs if of_output else call.inputs
    width = buffers[0].count // (buffers[0].shape[0] or 1) if buffers and buffers[0].shape else 1
    return [rows * width for rows in slice_rows(call, world_size, of_output=of_output)]


def slice_rows(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Rows that go to or come from each rank, as its splits say; without splits all are alike."""
    buffers = call.outputs if of_output else call.inputs
    splits = call.splits[0 if of_output else 1] if call.splits else ()
    rows = buffers[0].shape[0] if buffers and buffers[0].shape else 0
    return list(splits) if len(splits) == world_size else [rows // world_size] * world_size
