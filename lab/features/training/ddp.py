"""Explain DistributedDataParallel: the calls of each module of a rank at construction and in each step, and why.

How torch 2.13 uses process groups: `torch/nn/parallel/distributed.py` (construction, forward) and
`torch/csrc/distributed/c10d/reducer.cpp` (verification of shapes, buckets, rebuilding, unused parameters).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import Finding, Words, unique_lines
from lab.features.stragglers.timing import Span, covered_s
from lab.features.training.findings import TrainingKind
from lab.trace.model import Buckets, Call, Phase, RankTrace, calls_within
from lab.words import format_bytes, format_count, format_duration, join_words

_MOST_NAMES = 4
_MOST_BUCKETS = 4
_MOST_OTHER = 20


class DdpStory(Finding):
    """The calls of a DDP module, and why."""

    module: int = 0
    """Number of the module, if there are several."""
    made_at: str = ""
    what: tuple[str, ...] = ()
    """The calls or their contents, in short."""
    count: int = 0
    of: int = 0
    bytes: int = 0
    before: int = 0
    first: int = 0
    other_buckets: int = field(default=0, metadata={"key": "more"})
    number: int = 0
    share: float = 0.0
    step_s: float = 0.0
    single_bucket: bool = False
    with_buffers: bool = False
    dtype: str = ""
    parameters: int | None = None

    def render(self) -> Words:
        """Describe the calls of the module; name the module if there are several."""
        head, *rest = self._chapter()
        where = f"DDP module {self.module} ({self.made_at}): " if self.module else ""
        return f"{where}{head}", *rest

    def _chapter(self) -> tuple[str, ...]:
        calls = join_words(self.what)
        match self.kind:
            case TrainingKind.DDP_COUNTED:
                here = f", here {self.parameters}" if self.parameters is not None else ""
                return (
                    f"DDP() at {self.made_at}: ranks exchange their numbers of parameters{here} ({calls})",
                    "If the numbers differ, DDP raises an error instead of hanging later.",
                )
            case TrainingKind.DDP_VERIFIED:
                sent = f"Rank 0 sends the sizes and strides of its parameters ({calls})"
                return (f"{sent}, and every rank compares them with its own",)
            case TrainingKind.DDP_STATE:
                what = f"{self.parameters} parameters" if self.parameters else "parameters"
                what = "parameters and buffers" if self.with_buffers else what
                size = f"{format_bytes(self.bytes)} in {format_count(self.count, 'broadcast')}"
                head = f"Rank 0's {what} replace those of all ranks: {size}"
                return head, "DDP joins tensors of a dtype into pieces of up to 250 MiB."
            case TrainingKind.DDP_BUFFERS:
                forwards = f"{self.count} of {format_count(self.of, 'forward')}"
                head = f"In {forwards} rank 0's buffers replace those of all ranks ({calls})"
                return f"{head}: BatchNorm's running statistics, for example", "broadcast_buffers=False turns that off."
            case TrainingKind.DDP_REDUCED:
                which = "It" if self.number == 1 else "The last"
                extra = f"; {self.other_buckets} more" if self.other_buckets else ""
                first = f", the first {self.first}" if self.first != self.count else ""
                return (
                    f"{format_count(self.number, 'backward')} summed gradients over all ranks, with one call for each "
                    "bucket as soon as it is full",
                    f"{which} had {format_count(self.count, 'bucket')}{first}: {'; '.join(self.what)}{extra}.",
                )
            case TrainingKind.DDP_COMPRESSED:
                sizes = f"{format_bytes(self.bytes)} instead of {format_bytes(self.before)}"
                hook = "a communication hook compresses them, which rounds the gradients"
                return (f"Ranks send the buckets as {self.dtype}, {sizes}: {hook}",)
            case TrainingKind.DDP_REBUILT:
                buckets = format_count(self.count, "bucket")
                became = f"still {buckets}" if self.before == self.count else f"{buckets} instead of {self.before}"
                order = f"In forward {self.number} rank 0 sends its order ({calls})"
                return (
                    "The first backward with gradients to reduce showed in which order they become ready",
                    f"{order}, and DDP rebuilds the buckets: {became}.",
                )
            case TrainingKind.DDP_OVERLAP if self.single_bucket:
                serial = "its all_reduce cannot run in parallel with the computation"
                full = f"With one bucket, full only when the last gradient is ready, {serial}"
                return (f"{full}: {format_duration(self.step_s)} a step",)
            case TrainingKind.DDP_OVERLAP:
                return (
                    f"{self.share:.0%} of the time of these calls passed while backward still computed gradients",
                    f"For the rest, {format_duration(self.step_s)} per step, backward only waited.",
                )
            case TrainingKind.DDP_UNUSED:
                used = f"each backward also sums who used which parameter ({calls}, a number for each parameter)"
                return (f"With find_unused_parameters {used}: a parameter that no rank used keeps its gradient",)
            case TrainingKind.DDP_OTHER:
                sent = f"{format_count(self.count, 'call')} in backward had no whole bucket ({calls})"
                whose = "they belong to a communication hook, SyncBatchNorm, or the script"
                return (f"{sent}: {whose}",)
        backwards = f"{self.count} of {format_count(self.of, 'backward')}"
        return (f"{backwards} sent nothing: under no_sync() DDP sums gradients only locally",)


Chapter = tuple[TrainingKind, Sequence[Call] | None, Mapping[str, Any]]
"""Kind, calls, and other fields of a `DdpStory`. An empty list of calls: no such finding; None: the finding needs no
calls."""


class Backward(NamedTuple):
    """A backward pass through a DDP module."""

    calls: Sequence[Call]
    quiet: bool = False
    """Whether it ran under no_sync()."""

    @property
    def buckets(self) -> list[Call]:
        """Reductions of buckets, in order."""
        return [call for call in self.calls if call.bucket is not None]


@dataclass(slots=True)
class Module:
    """The calls of one module of one rank, as far as they can be assigned to it."""

    number: int
    source: str
    layouts: list[Buckets]
    construction: Sequence[Call]
    forwards: list[list[Call]] = field(default_factory=list)
    """Calls of DDP itself before each forward."""
    backwards: list[Backward] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """Number of its parameters; 0 if unknown."""
        return sum(map(len, self.layouts[0].buckets)) if self.layouts else 0


def find_modules(rank: RankTrace) -> list[Module]:
    """Return the modules of a rank, each with the calls that can be assigned to it.

    With several modules, these are construction, forwards, and the buckets of gradients.
    """

    def during(phase: Phase) -> Sequence[Call]:
        return calls_within(rank.calls, phase.begin, math.inf if phase.end is None else phase.end)

    built, modules = [phase for phase in rank.phases if phase.name == "DDP()"], list[Module]()
    alone = len(built) == 1
    for number, begun in enumerate(built, start=1):
        module = Module(number, begun.source, [one for one in rank.buckets if one.module == number], during(begun))
        modules.append(module)
        forward: Phase | None = None
        for phase in (phase for phase in rank.phases if phase.begin >= begun.begin):
            if phase.name == "forward" and (phase.module == number or (alone and phase.module is None)):
                forward = phase
                sent = [call for call in during(phase) if call.op == "broadcast"]
                module.forwards.append([call for call in sent if call.via.startswith("DistributedDataParallel")])
            elif phase.name == "backward" and not alone:
                if buckets := [call for call in during(phase) if call.module == number]:
                    module.backwards.append(Backward(buckets))
            elif phase.name == "backward" and forward is not None:
                module.backwards.append(Backward(during(phase), quiet=not forward.synchronised))
                forward = None  # a backward without an earlier forward belongs to another model
    return modules


def _dtype(call: Call) -> str:
    return call.inputs[0].dtype if call.inputs else ""


# -- the findings, in order


def explain_ddp(run: Explained) -> list[Finding]:
    """Return the findings about DDP in a run without errors; without overlap if times of the run mean nothing."""
    story = build_ddp_story(run.evidence) if run.ended_well and not run.causes and run.evidence.trace.recorded else []
    return [one for one in story if not (run.evidence.untimed and one.kind is TrainingKind.DDP_OVERLAP)]


def build_ddp_story(evidence: Evidence) -> list[Finding]:
    """Return what the DDP modules of the lowest rank sent; for later modules only kinds that no earlier one has."""
    modules = next((ours for rank in evidence.trace.ranks.values() if (ours := find_modules(rank))), [])
    story: dict[TrainingKind, Finding] = {}
    for module in modules:
        for kind, calls, facts in _chapters(module):
            if kind in story or calls == []:
                continue
            step = evidence.step(calls[0]) if calls else None
            took = sum(call.end - call.begin for call in calls or () if call.end is not None)
            story[kind] = DdpStory(
                kind=kind,
                module=module.number if len(modules) > 1 else 0,
                made_at=module.source,
                others=tuple(evidence.trace.ranks),
                step=step.title if step is not None else "",
                lines=unique_lines(call.source for call in calls or ()) or (module.source,),
                seconds=round(took, 6) if calls else None,
                **facts,
            )
    return list(story.values())


def _chapters(module: Module) -> Iterator[Chapter]:
    kinds = TrainingKind
    counted = [call for call in module.construction if call.op == "all_gather" and _dtype(call) == "int64"]
    if counted:
        values = counted[0].inputs[0].values
        yield kinds.DDP_COUNTED, counted, {"what": _what(counted), "parameters": int(values[0]) if values else None}
    sent = [call for call in module.construction if call.op == "broadcast"]
    verified = [call for call in sent[:1] if counted and _dtype(call) == "int64"]
    yield kinds.DDP_VERIFIED, verified, {"what": _what(verified)}
    state = sent[len(verified) :]
    elements = sum(call.inputs[0].count for call in state if call.inputs)
    whose = {"with_buffers": elements > sum(module.layouts[0].sizes if module.layouts else ())}
    size = {"parameters": module.parameters, "bytes": _bytes(state), "count": len(state)}
    yield kinds.DDP_STATE, state, whose | size
    rebuilt_at, rebuilt = _rebuilding(module)
    buffers = [own for calls in module.forwards if (own := [call for call in calls if call not in rebuilt])]
    what = _what(buffers[0]) if buffers else ()
    yield kinds.DDP_BUFFERS, [*chain(*buffers)], {"count": len(buffers), "of": len(module.forwards), "what": what}
    reducing = [buckets for backward in module.backwards if (buckets := backward.buckets)]
    if reducing:
        yield from _reduction(reducing, [call for call in state if call.inputs])
    if rebuilt:
        before, after = (len(layout.buckets) for layout in (module.layouts[0], module.layouts[-1]))
        order = {"number": rebuilt_at, "what": _what(rebuilt), "count": after, "before": before}
        yield kinds.DDP_REBUILT, rebuilt, order
    if overlap := _overlap(reducing):
        yield kinds.DDP_OVERLAP, None, overlap
    rest = [call for backward in module.backwards for call in backward.calls if call.bucket is None]
    bitmaps = [call for call in rest if _is_bitmap(call, module)]
    yield kinds.DDP_UNUSED, bitmaps, {"what": _what(bitmaps[:1])}
    other = [call for call in rest if not _is_bitmap(call, module)]
    names = tuple(f"{call.op} by {call.via}" if call.via else call.op for call in other[:_MOST_OTHER])
    yield kinds.DDP_OTHER, other, {"count": len(other), "what": names}
    quiet = [backward.calls for backward in module.backwards if backward.quiet]
    if silent := sum(all(_is_bitmap(call, module) for call in calls) for calls in quiet):
        yield kinds.DDP_SILENT, None, {"count": silent, "of": len(module.backwards)}


def _is_bitmap(call: Call, module: Module) -> bool:
    """Return whether a call adds up which parameters were used."""
    return call.op == "all_reduce" and call.bucket is None and _is_of_parameters(call, module, 0)


def _rebuilding(module: Module) -> tuple[int, list[Call]]:
    """Return the number of the forward before which rank 0 sent its parameter order, from 1, and its calls; or none."""
    for number, calls in enumerate(module.forwards, start=1):
        order = [call for call in calls if _dtype(call) == "int32"][:2]
        if len(order) == 2 and _is_of_parameters(order[0], module, 1):
            return number, order
    return 0, []


def _is_of_parameters(call: Call, module: Module, extra: int) -> bool:
    """Return whether a call has an integer for each parameter, and `extra` more."""
    return _dtype(call) == "int32" and call.inputs[0].count == module.parameters + extra


def _reduction(reducing: Sequence[Sequence[Call]], state: Sequence[Call]) -> Iterator[Chapter]:
    """Yield the buckets, and that they are compressed if their dtype differs from that of the parameters."""
    first, last = reducing[0], reducing[-1]
    shown = tuple(
        f"{format_bytes(call.bytes_in)} of {call.inputs[0].dtype} ({_names(call.parameters)})"
        for call in last[:_MOST_BUCKETS]
    )
    sizes = {"number": len(reducing), "count": len(last), "first": len(first)}
    what = {"what": shown, "other_buckets": len(last[_MOST_BUCKETS:])}
    yield TrainingKind.DDP_REDUCED, [*chain(*reducing)], what | sizes
    own, sent = {_dtype(call) for call in state}, {_dtype(call) for call in last if call.inputs}
    if len(sent) == 1 and own and not sent & own:
        before = sum(call.inputs[0].count for call in last) * (state[0].bytes_in // max(1, state[0].inputs[0].count))
        yield TrainingKind.DDP_COMPRESSED, last, {"dtype": sent.pop(), "bytes": _bytes(last), "before": before}


def _overlap(reducing: Sequence[Sequence[Call]]) -> dict[str, Any]:
    """Return how much of the time of buckets passed while gradients were computed; empty if there are no buckets.

    Gradients count as complete when the last bucket of the backward has been issued.
    """
    total, overlapped = 0.0, 0.0
    for buckets in reducing:
        spans: list[Span] = [(call.begin, call.end) for call in buckets if call.end is not None]
        issued = max((begin for begin, _ in spans), default=0.0)
        total += covered_s(spans)
        overlapped += covered_s((begin, min(end, issued)) for begin, end in spans)
    single = all(len(buckets) == 1 for buckets in reducing)
    step_s = (total if single else total - overlapped) / max(1, len(reducing))
    return {"single_bucket": single, "share": overlapped / total, "step_s": step_s} if total else {}


def _what(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return `broadcast of int64 [18]`, for each call."""
    return tuple(f"{call.op} of {call.inputs[0].dtype} {list(call.inputs[0].shape)}" for call in calls if call.inputs)


def _bytes(calls: Sequence[Call]) -> int:
    return sum(call.bytes_in for call in calls)


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
