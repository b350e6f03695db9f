"""The story of DistributedDataParallel: what each module of a rank sent, at construction and in each step, and why.

How torch 2.13 uses process groups: `torch/nn/parallel/distributed.py` (construction, forward) and
`torch/csrc/distributed/c10d/reducer.cpp` (verification of shapes, buckets, rebuilding, unused parameters).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import Finding, Kind
from lab.features.stragglers.timing import Span, length
from lab.features.training.findings import DdpStory, TrainingKind
from lab.trace.model import Buckets, Call, Mark, RankTrace, calls_within
from lab.words import format_bytes

_MOST_NAMES = 4
_MOST_BUCKETS = 4
_MOST_OTHER = 20
Chapter = tuple[DdpStory, Sequence[Call]]
"""A finding, and the calls that it is about."""


class Backward(NamedTuple):
    """A backward pass through a DDP module."""

    calls: Sequence[Call]
    quiet: bool = False
    """Whether no_sync() was in force."""

    @property
    def buckets(self) -> list[Call]:
        """Reductions of buckets, in their order."""
        return [call for call in self.calls if call.bucket is not None]


@dataclass(slots=True)
class Module:
    """What one module of one rank called, as far as it is known to be its own."""

    number: int
    source: str
    layouts: list[Buckets]
    construction: Sequence[Call]
    forwards: list[list[Call]] = field(default_factory=list)
    """What DDP itself sent before each."""
    backwards: list[Backward] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """Number of its parameters; 0 where that is not on record."""
        return sum(map(len, self.layouts[0].buckets)) if self.layouts else 0


def find_modules(rank: RankTrace) -> list[Module]:
    """The modules of a rank, each with what is known to be its own.

    Where there are several, that is its construction, its forwards, and the buckets of its gradients.
    """

    def during(mark: Mark) -> Sequence[Call]:
        return calls_within(rank.calls, mark.begin, math.inf if mark.end is None else mark.end)

    built = [mark for mark in rank.marks if mark.name == "DDP()"]
    alone = len(built) == 1
    modules = []
    for number, begun in enumerate(built, start=1):
        module = Module(number, begun.source, [one for one in rank.buckets if one.module == number], during(begun))
        modules.append(module)
        forward: Mark | None = None
        for mark in (mark for mark in rank.marks if mark.begin >= begun.begin):
            if mark.name == "forward" and (mark.module == number or (alone and mark.module is None)):
                forward = mark
                module.forwards.append([call for call in during(mark) if call.op == "broadcast" and _is_of_ddp(call)])
            elif mark.name == "backward" and not alone:
                if buckets := [call for call in during(mark) if call.module == number]:
                    module.backwards.append(Backward(buckets))
            elif mark.name == "backward" and forward is not None:
                module.backwards.append(Backward(during(mark), quiet=not forward.synchronised))
                forward = None  # a backward without a forward before it is some other model's
    return modules


def _is_of_ddp(call: Call) -> bool:
    return call.via.startswith("DistributedDataParallel")


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
    story: dict[Kind, Finding] = {}
    for module in modules:
        for facts, calls in _chapters(module):
            if facts.kind in story:
                continue
            step = evidence.step(calls[0]) if calls else None
            took = sum(call.end - call.begin for call in calls if call.end is not None)
            story[facts.kind] = replace(
                facts,
                module=module.number if len(modules) > 1 else 0,
                made_at=module.source,
                others=tuple(evidence.trace.ranks),
                step=step.title if step is not None else "",
                lines=tuple(filter(None, (call.source for call in calls))) or (module.source,),
                seconds=round(took, 6) if calls else None,
            )
    return list(story.values())


def _chapters(module: Module) -> Iterator[Chapter]:
    counted = [call for call in module.construction if call.op == "all_gather" and _dtype(call) == "int64"]
    if counted:
        values = counted[0].inputs[0].values
        facts = DdpStory(
            kind=TrainingKind.DDP_COUNTED, what=_what(counted), parameters=int(values[0]) if values else None
        )
        yield facts, counted
    sent = [call for call in module.construction if call.op == "broadcast"]
    verified = [call for call in sent[:1] if counted and _dtype(call) == "int64"]
    if verified:
        yield DdpStory(kind=TrainingKind.DDP_VERIFIED, what=_what(verified)), verified
    state = sent[len(verified) :]
    if state:
        elements = sum(call.inputs[0].count for call in state if call.inputs)
        with_buffers = elements > (sum(module.layouts[0].sizes) if module.layouts else 0)
        facts = DdpStory(
            kind=TrainingKind.DDP_STATE,
            with_buffers=with_buffers,
            parameters=module.parameters,
            bytes=_bytes(state),
            count=len(state),
        )
        yield facts, state
    rebuilt_at, rebuilt = _rebuilding(module)
    buffers = [own for calls in module.forwards if (own := [call for call in calls if call not in rebuilt])]
    if buffers:
        facts = DdpStory(
            kind=TrainingKind.DDP_BUFFERS, count=len(buffers), of=len(module.forwards), what=_what(buffers[0])
        )
        yield facts, [*chain(*buffers)]
    reducing = [buckets for backward in module.backwards if (buckets := backward.buckets)]
    yield from _reduction(reducing, [call for call in state if call.inputs])
    if rebuilt:
        before, after = (len(layout.buckets) for layout in (module.layouts[0], module.layouts[-1]))
        facts = DdpStory(
            kind=TrainingKind.DDP_REBUILT, number=rebuilt_at, what=_what(rebuilt), count=after, before=before
        )
        yield facts, rebuilt
    if overlap := _overlap(reducing):
        yield overlap, []
    rest = [call for backward in module.backwards for call in backward.calls if call.bucket is None]
    bitmaps = [call for call in rest if _is_bitmap(call, module)]
    if bitmaps:
        yield DdpStory(kind=TrainingKind.DDP_UNUSED, what=_what(bitmaps[:1])), bitmaps
    other = [call for call in rest if not _is_bitmap(call, module)]
    if other:
        names = tuple(f"{call.op} by {call.via}" if call.via else call.op for call in other[:_MOST_OTHER])
        yield DdpStory(kind=TrainingKind.DDP_OTHER, count=len(other), what=names), other
    quiet = [backward.calls for backward in module.backwards if backward.quiet]
    silent = sum(all(_is_bitmap(call, module) for call in calls) for calls in quiet)
    if silent:
        yield DdpStory(kind=TrainingKind.DDP_SILENT, count=silent, of=len(module.backwards)), []


def _is_bitmap(call: Call, module: Module) -> bool:
    """Whether it adds up which parameters were used."""
    return call.op == "all_reduce" and call.bucket is None and _is_of_parameters(call, module, 0)


def _rebuilding(module: Module) -> tuple[int, list[Call]]:
    """The number of the forward before which rank 0 sent its order of parameters, from 1, and how; or none."""
    for number, calls in enumerate(module.forwards, start=1):
        order = [call for call in calls if _dtype(call) == "int32"][:2]
        if len(order) == 2 and _is_of_parameters(order[0], module, 1):
            return number, order
    return 0, []


def _is_of_parameters(call: Call, module: Module, more: int) -> bool:
    """Whether it has a whole number for each parameter, and so many more."""
    return _dtype(call) == "int32" and call.inputs[0].count == module.parameters + more


def _reduction(reducing: Sequence[Sequence[Call]], state: Sequence[Call]) -> Iterator[Chapter]:
    """The buckets; and where they travel in another dtype than the parameters have, that they are compressed."""
    if not reducing:
        return
    first, last = reducing[0], reducing[-1]
    shown = (
        f"{format_bytes(call.bytes_in)} of {call.inputs[0].dtype} ({_names(call.parameters)})"
        for call in last[:_MOST_BUCKETS]
    )
    more = max(0, len(last) - _MOST_BUCKETS)
    facts = DdpStory(
        kind=TrainingKind.DDP_REDUCED,
        number=len(reducing),
        count=len(last),
        first=len(first),
        what=tuple(shown),
        more=more,
    )
    yield facts, [*chain(*reducing)]
    own, sent = {_dtype(call) for call in state}, {_dtype(call) for call in last if call.inputs}
    if len(sent) == 1 and own and not sent & own:
        width = state[0].bytes_in // max(1, state[0].inputs[0].count)
        before = sum(call.inputs[0].count for call in last) * width
        yield DdpStory(kind=TrainingKind.DDP_COMPRESSED, dtype=sent.pop(), bytes=_bytes(last), before=before), last


def _overlap(reducing: Sequence[Sequence[Call]]) -> DdpStory | None:
    """How much of the time of buckets passed while gradients were still being computed.

    Gradients are taken to be complete when the last bucket of the backward has been issued.
    """
    total, beside = 0.0, 0.0
    for buckets in reducing:
        spans: list[Span] = [(call.begin, call.end) for call in buckets if call.end is not None]
        issued = max((begin for begin, _ in spans), default=0.0)
        total += length(spans)
        beside += length((begin, min(end, issued)) for begin, end in spans)
    if not total:
        return None
    single = all(len(buckets) == 1 for buckets in reducing)
    step_s = (total if single else total - beside) / len(reducing)
    return DdpStory(kind=TrainingKind.DDP_OVERLAP, single_bucket=single, share=beside / total, step_s=step_s)


def _what(calls: Sequence[Call]) -> tuple[str, ...]:
    """`broadcast of int64 [18]`, for each call."""
    return tuple(f"{call.op} of {call.inputs[0].dtype} {list(call.inputs[0].shape)}" for call in calls if call.inputs)


def _bytes(calls: Sequence[Call]) -> int:
    return sum(call.bytes_in for call in calls)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
