"""Where each element of an output comes from, by the definition of the operation: arithmetic on sizes and ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

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
    rule = _RULES.get(call.op, _unknown)
    return tuple(rule(step, call, index) for index in range(len(call.outputs)))


def input_parts(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """The parts of one input, each of which goes to another rank, or the whole where it is not dealt out."""
    count, ranks = call.inputs[index].count, step.group.ranks
    if call.op in _DEALT_TENSORS and index < len(ranks):
        return (Part(count, (Source(call.rank, index, 0),), target=ranks[index]),)
    sizes = slice_sizes(call, len(ranks), of_output=False) if call.op == "all_to_all_single" else []
    if call.op in _DEALT_SLICES and count % len(ranks) == 0:
        sizes = [count // len(ranks)] * len(ranks)
    if not sizes or sum(sizes) != count:
        return (Part(count, (Source(call.rank, index, 0),)),)
    starts = accumulate(sizes, initial=0)
    return tuple(
        Part(size, (Source(call.rank, index, start),), target=rank)
        for rank, size, start in zip(ranks, sizes, starts, strict=False)
    )


_DEALT_TENSORS = frozenset({"scatter", "reduce_scatter", "all_to_all"})
_DEALT_SLICES = frozenset({"reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"})


def _place(step: Step, rank: int) -> int:
    """The rank within the group."""
    return step.group.ranks.index(rank) if rank in step.group.ranks else 0


def _unknown(_: Step, call: Call, index: int) -> tuple[Part, ...]:
    return (Part(call.outputs[index].count),)


def _from_root(_: Step, call: Call, index: int) -> tuple[Part, ...]:
    sources = () if call.root is None else (Source(call.root, index, 0),)
    return (Part(call.outputs[index].count, sources),)


def _scattered(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    sources = () if call.root is None else (Source(call.root, _place(step, call.rank), 0),)
    return (Part(call.outputs[index].count, sources),)


def _received(_: Step, call: Call, index: int) -> tuple[Part, ...]:
    sources = () if call.peer is None else (Source(call.peer, index, 0),)
    return (Part(call.outputs[index].count, sources),)


def _reduced(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    sources = tuple(Source(rank, index, 0) for rank in step.group.ranks)
    return (Part(call.outputs[index].count, sources, reduced=True),)


def _reduced_at_root(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    return _reduced(step, call, index) if call.rank == call.root else _unknown(step, call, index)


def _one_of_each(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """Output i is the tensor of rank i; where ranks give several tensors each, those of a rank stand together."""
    each = max(1, len(call.inputs))
    if index // each >= len(step.group.ranks):
        return _unknown(step, call, index)
    return (Part(call.outputs[index].count, (Source(step.group.ranks[index // each], index % each, 0),)),)


def _joined(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """Output i is the inputs i of all ranks, one after the other."""
    ranks = step.group.ranks
    whole, rest = divmod(call.outputs[index].count, max(1, len(ranks)))
    if rest:
        return _unknown(step, call, index)
    return tuple(Part(whole, (Source(rank, index, 0),)) for rank in ranks)


def _reduced_chunk(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """The chunks for this rank are tensors of their own."""
    sources = tuple(Source(rank, _place(step, call.rank), 0) for rank in step.group.ranks)
    return (Part(call.outputs[index].count, sources, reduced=True),)


def _reduced_slice(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    """The chunks for this rank are slices of the inputs."""
    count = call.outputs[index].count
    start = _place(step, call.rank) * count
    return (Part(count, tuple(Source(rank, index, start) for rank in step.group.ranks), reduced=True),)


def _exchanged(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    if index >= len(step.group.ranks):
        return _unknown(step, call, index)
    source = Source(step.group.ranks[index], _place(step, call.rank), 0)
    return (Part(call.outputs[index].count, (source,)),)


def _exchanged_slices(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    me = _place(step, call.rank)
    sizes = slice_sizes(call, len(step.group.ranks), of_output=True)
    if sum(sizes) != call.outputs[index].count:
        return _unknown(step, call, index)
    parts = []
    for rank, size in zip(step.group.ranks, sizes, strict=True):
        sender = step.calls.get(rank)
        start = sum(slice_sizes(sender, len(step.group.ranks), of_output=False)[:me]) if sender else 0
        parts.append(Part(size, (Source(rank, index, start),)))
    return tuple(parts)


def slice_sizes(call: Call, world_size: int, *, of_output: bool) -> list[int]:
    """Elements of each slice of an `all_to_all_single`: its splits count rows, without splits all are alike."""
    buffers = call.outputs if of_output else call.inputs
    if not buffers:
        return [0] * world_size
    buffer = buffers[0]
    splits = (call.splits[0] if of_output else call.splits[1]) if call.splits else ()
    if len(splits) != world_size:
        return [buffer.count // world_size] * world_size
    rows = buffer.shape[0] if buffer.shape else 1
    return [size * (buffer.count // rows if rows else 0) for size in splits]


_RULES: dict[str, Rule] = {
    "broadcast": _from_root,
    "scatter": _scattered,
    "recv": _received,
    "all_reduce": _reduced,
    "all_reduce_coalesced": _reduced,
    "reduce": _reduced_at_root,
    "all_gather": _one_of_each,
    "all_gather_coalesced": _one_of_each,
    "gather": _one_of_each,
    "all_gather_into_tensor": _joined,
    "all_gather_into_tensor_coalesced": _joined,
    "reduce_scatter": _reduced_chunk,
    "reduce_scatter_tensor": _reduced_slice,
    "reduce_scatter_tensor_coalesced": _reduced_slice,
    "all_to_all": _exchanged,
    "all_to_all_single": _exchanged_slices,
}
