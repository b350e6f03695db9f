"""The story of DistributedDataParallel: what each module of a rank sent, at construction and in each step, and why.

How torch 2.13 uses process groups: `torch/nn/parallel/distributed.py` (construction, forward) and
`torch/csrc/distributed/c10d/reducer.cpp` (verification of shapes, buckets, rebuilding, unused parameters).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import Finding
from lab.features.stragglers.timing import Span, length
from lab.features.training.findings import DdpStory, TrainingKind
from lab.trace.model import Buckets, Call, Mark, RankTrace, calls_within
from lab.words import format_bytes

_MOST_NAMES = 4
_MOST_BUCKETS = 4
_MOST_OTHER = 20
Chapter = tuple[TrainingKind, DdpStory, Sequence[Call]]
"""Kind, facts, and the calls that they are about."""


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
    layouts: list[Buckets]
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
    backwards: list[Backward] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """Number of its parameters; 0 where that is not on record."""
        return sum(map(len, self.layouts[0].buckets)) if self.layouts else 0


def find_modules(rank: RankTrace) -> list[Module]:
    """The modules of a rank, each with what is known to be its own.

    Where there are several, that is its construction, its forwards, and the buckets of its gradients.
    """
    built = [mark for mark in rank.marks if mark.name == "DDP()"]
    return [_module(number, mark, rank, alone=len(built) == 1) for number, mark in enumerate(built, start=1)]


def _module(number: int, built: Mark, rank: RankTrace, *, alone: bool) -> Module:
    module = Module(number, built.source, [layout for layout in rank.buckets if layout.module == number])
    for call in _during(built, rank):
        whole = _dtype(call) == "int64" and not module.verified
        if call.op == "all_gather" and whole:
            module.counted.append(call)
        elif call.op == "broadcast":
            (module.verified if whole and module.counted else module.state).append(call)
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
    return calls_within(rank.calls, mark.begin, float("inf") if mark.end is None else mark.end)


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


def _dtype(call: Call) -> str:
    return call.inputs[0].dtype if call.inputs else ""


# -- the story


def explain_ddp(run: Explained) -> list[Finding]:
    """The story of a run that ended well; of one whose times say nothing, without them."""
    story = tell_ddp_story(run.evidence) if run.ended_well and run.evidence.trace.recorded else []
    return [one for one in story if not (run.evidence.untimed and one.kind is TrainingKind.DDP_OVERLAP)]


def tell_ddp_story(evidence: Evidence) -> list[Finding]:
    """What the DDP modules of the lowest rank sent; of later modules only what the earlier ones did not do."""
    modules = next((ours for rank in evidence.trace.ranks.values() if (ours := find_modules(rank))), [])
    story: dict[TrainingKind, Finding] = {}
    for module in modules:
        for tell in (_construction, _reduction, _overlap, _further):
            for kind, facts, calls in tell(module):
                if kind in story:
                    continue
                step = evidence.step(calls[0]) if calls else None
                took = sum(call.end - call.begin for call in calls if call.end is not None)
                story[kind] = replace(
                    facts,
                    module=module.number if len(modules) > 1 else 0,
                    made_at=module.source,
                    others=tuple(evidence.trace.ranks),
                    step=step.title if step is not None else "",
                    lines=tuple(filter(None, (call.source for call in calls))) or (module.source,),
                    seconds=round(took, 6) if calls else None,
                ).as_finding(kind)
    return list(story.values())


def _construction(module: Module) -> Iterator[Chapter]:
    if module.counted:
        values = module.counted[0].inputs[0].values
        parameters = int(values[0]) if values else None
        facts = DdpStory(what=_what(module.counted), parameters=parameters)
        yield TrainingKind.DDP_COUNTED, facts, module.counted
    if module.verified:
        yield TrainingKind.DDP_VERIFIED, DdpStory(what=_what(module.verified)), module.verified
    if module.state:
        sent = sum(call.inputs[0].count for call in module.state if call.inputs)
        facts = DdpStory(
            with_buffers=sent > (sum(module.layouts[0].sizes) if module.layouts else 0),
            parameters=module.parameters,
            bytes=_bytes(module.state),
            count=len(module.state),
        )
        yield TrainingKind.DDP_STATE, facts, module.state
    if module.buffers:
        facts = DdpStory(count=len(module.buffers), of=module.forwards, what=_what(module.buffers[0]))
        yield TrainingKind.DDP_BUFFERS, facts, [call for calls in module.buffers for call in calls]


def _reduction(module: Module) -> Iterator[Chapter]:
    reducing = [backward.buckets for backward in module.backwards if backward.buckets]
    if reducing:
        first, last = reducing[0], reducing[-1]
        shown = (
            f"{format_bytes(_bytes([call]))} of {call.inputs[0].dtype} ({_names(call.parameters)})"
            for call in last[:_MOST_BUCKETS]
        )
        more = max(0, len(last) - _MOST_BUCKETS)
        facts = DdpStory(number=len(reducing), count=len(last), first=len(first), what=tuple(shown), more=more)
        yield TrainingKind.DDP_REDUCED, facts, [call for calls in reducing for call in calls]
        yield from _compression(module, last)
    if module.rebuilt:
        before, after = (len(layout.buckets) for layout in (module.layouts[0], module.layouts[-1]))
        facts = DdpStory(number=module.rebuilt_at, what=_what(module.rebuilt), count=after, before=before)
        yield TrainingKind.DDP_REBUILT, facts, module.rebuilt


def _compression(module: Module, buckets: Sequence[Call]) -> Iterator[Chapter]:
    """Buckets that travel in another dtype than the parameters have."""
    own = {call.inputs[0].dtype for call in module.state if call.inputs}
    sent = {call.inputs[0].dtype for call in buckets if call.inputs}
    if len(sent) == 1 and own and not sent & own:
        whole = next(call for call in module.state if call.inputs)
        width = whole.bytes_in // max(1, whole.inputs[0].count)
        before = sum(call.inputs[0].count for call in buckets) * width
        yield TrainingKind.DDP_COMPRESSED, DdpStory(dtype=sent.pop(), bytes=_bytes(buckets), before=before), buckets


def _overlap(module: Module) -> Iterator[Chapter]:
    """How much of the time of buckets passed while gradients were still being computed.

    Gradients are taken to be complete when the last bucket of the backward has been issued.
    """
    total, beside = 0.0, 0.0
    reducing = [backward.buckets for backward in module.backwards if backward.buckets]
    for buckets in reducing:
        spans: list[Span] = [(call.begin, call.end) for call in buckets if call.end is not None]
        if spans:
            issued = max(begin for begin, _ in spans)
            total += length(spans)
            beside += length((begin, min(end, issued)) for begin, end in spans)
    if total > 0:
        single = all(len(buckets) == 1 for buckets in reducing)
        step_s = (total if single else total - beside) / len(reducing)
        yield TrainingKind.DDP_OVERLAP, DdpStory(single_bucket=single, share=beside / total, step_s=step_s), []


def _further(module: Module) -> Iterator[Chapter]:
    bitmaps = [call for backward in module.backwards for call in backward.bitmap]
    if bitmaps:
        yield TrainingKind.DDP_UNUSED, DdpStory(what=_what(bitmaps[:1])), bitmaps
    other = [call for backward in module.backwards for call in backward.other]
    if other:
        names = tuple(f"{call.op} by {call.via}" if call.via else call.op for call in other[:_MOST_OTHER])
        yield TrainingKind.DDP_OTHER, DdpStory(count=len(other), what=names), other
    silent = sum(backward.quiet and not (backward.buckets or backward.other) for backward in module.backwards)
    if silent:
        yield TrainingKind.DDP_SILENT, DdpStory(count=silent, of=len(module.backwards)), []


def _what(calls: Sequence[Call]) -> tuple[str, ...]:
    """`broadcast of int64 [18]`, for each call."""
    return tuple(f"{call.op} of {call.inputs[0].dtype} {list(call.inputs[0].shape)}" for call in calls if call.inputs)


def _bytes(calls: Sequence[Call]) -> int:
    return sum(call.bytes_in for call in calls)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown
