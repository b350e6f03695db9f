"""What every DistributedDataParallel module of a rank sent, sorted by what it was for.

How torch 2.13 uses process groups: `torch/nn/parallel/distributed.py` (construction, forward) and
`torch/csrc/distributed/c10d/reducer.cpp` (verification of shapes, buckets, rebuilding, unused parameters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.trace.model import Call, Mark, RankTrace, calls_within
from lab.trace.timing import Span, length
from lab.trace.training import Buckets

_INFINITY = float("inf")


@dataclass(slots=True)
class Backward:
    """A backward pass through a DDP module."""

    buckets: list[Call] = field(default_factory=list)
    """Reductions of buckets, in their order."""
    bitmap: list[Call] = field(default_factory=list)
    """Sums of which parameters were used."""
    other: list[Call] = field(default_factory=list)
    quiet: bool = False
    """Whether no_sync() was in force."""


@dataclass(slots=True)
class Module:
    """What one module of one rank sent."""

    number: int
    source: str
    counted: list[Call] = field(default_factory=list)
    """How many parameters each rank has."""
    verified: list[Call] = field(default_factory=list)
    """Rank 0's sizes and strides."""
    state: list[Call] = field(default_factory=list)
    """Rank 0's parameters and buffers, at construction."""
    forwards: int = 0
    buffers: list[list[Call]] = field(default_factory=list)
    """Rank 0's buffers, for each forward that sent them."""
    rebuilt: list[Call] = field(default_factory=list)
    """Rank 0's order of parameters."""
    rebuilt_at: int = 0
    """Number of the forward that sent it, from 1."""
    layouts: list[Buckets] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """Number of its parameters; 0 where that is not on record."""
        return sum(map(len, self.layouts[0].buckets)) if self.layouts else 0

    @property
    def elements(self) -> int:
        """Elements of all its parameters."""
        return sum(self.layouts[0].sizes) if self.layouts else 0


def find_modules(rank: RankTrace) -> list[Module]:
    """The modules of a rank, each with what is known to be its own.

    Where there are several, that is its construction, its forwards, and the buckets of its gradients.
    """
    built = [mark for mark in rank.marks if mark.name == "DDP()"]
    return [_module(number, mark, rank, alone=len(built) == 1) for number, mark in enumerate(built, start=1)]


def _module(number: int, built: Mark, rank: RankTrace, *, alone: bool) -> Module:
    module = Module(number=number, source=built.source)
    module.layouts = [layout for layout in rank.buckets if layout.module == number]
    for call in _during(built, rank):
        _sort_construction(call, module)
    forward: Mark | None = None
    for mark in rank.marks:
        if mark.begin < built.begin:
            continue
        if mark.name == "forward" and (mark.module == number or (alone and mark.module is None)):
            forward = mark
            module.forwards += 1
            _sort_forward(_during(mark, rank), module)
        elif mark.name == "backward" and not alone:
            buckets = [call for call in _during(mark, rank) if call.module == number]
            module.backwards += [Backward(buckets=buckets)] if buckets else []
        elif mark.name == "backward" and forward is not None:
            module.backwards.append(_sort_backward(_during(mark, rank), module, quiet=not forward.synchronised))
            forward = None  # a backward without a forward before it is some other model's
    return module


def _during(mark: Mark, rank: RankTrace) -> Sequence[Call]:
    return calls_within(rank.calls, mark.begin, _INFINITY if mark.end is None else mark.end)


def _sort_construction(call: Call, module: Module) -> None:
    whole = _dtype(call) == "int64" and not module.verified
    if call.op == "all_gather" and whole:
        module.counted.append(call)
    elif call.op == "broadcast":
        (module.verified if whole and module.counted else module.state).append(call)


def _sort_forward(calls: Sequence[Call], module: Module) -> None:
    """Before a forward DDP may send its new order of parameters, and sends its buffers."""
    mine = [call for call in calls if call.op == "broadcast" and call.via.startswith("DistributedDataParallel")]
    order = [call for call in mine if _dtype(call) == "int32"] if not module.rebuilt and module.backwards else []
    if len(order) >= 2 and order[0].inputs[0].count == module.parameters + 1:
        module.rebuilt, module.rebuilt_at = order[:2], module.forwards
    buffers = [call for call in mine if call not in module.rebuilt]
    if buffers:
        module.buffers.append(buffers)


def _sort_backward(calls: Sequence[Call], module: Module, *, quiet: bool) -> Backward:
    backward = Backward(quiet=quiet)
    for call in calls:
        bitmap = _dtype(call) == "int32" and call.op == "all_reduce" and call.inputs[0].count == module.parameters
        kind = backward.buckets if call.bucket is not None else backward.bitmap if bitmap else backward.other
        kind.append(call)
    return backward


def overlap(module: Module) -> tuple[float, float]:
    """Seconds of bucket reductions, and how many of them passed while gradients were still being computed.

    Gradients are taken to be complete when the last bucket of the backward has been issued.
    """
    total, beside = 0.0, 0.0
    for backward in module.backwards:
        spans: list[Span] = [(call.begin, call.end) for call in backward.buckets if call.end is not None]
        if spans:
            issued = max(begin for begin, _ in spans)
            total += length(spans)
            beside += length((begin, min(end, issued)) for begin, end in spans)
    return total, beside


def _dtype(call: Call) -> str:
    return call.inputs[0].dtype if call.inputs else ""
