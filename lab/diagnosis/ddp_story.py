"""The story of DistributedDataParallel: what it sent at construction and in each step, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.diagnosis.ddp import Module, find_modules, overlap
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.trace.model import Call
from lab.words import format_bytes, format_duration, listing, plural

_MOST_NAMES = 4
_MOST_BUCKETS = 4


Chapter = tuple[str, str, list[Call]]
"""Kind, sentence, and the calls that it is about."""


def tell_ddp_story(evidence: Evidence) -> list[Finding]:
    """What the DDP modules of the lowest rank sent; of later modules only what the earlier ones did not do."""
    modules = next((found for rank in evidence.trace.ranks.values() if (found := find_modules(rank))), [])
    told: dict[str, Finding] = {}
    for module in modules:
        where = f"DDP module {module.number} ({module.source}): " if len(modules) > 1 else ""
        for tell in (_construction, _buffers, _reduction, _rebuilding, _overlap, _further):
            for kind, sentence, calls in tell(module):
                if kind in told:
                    continue
                step = evidence.step(calls[0]) if calls else None
                took = sum(call.end - call.begin for call in calls if call.end is not None)
                told[kind] = Finding(
                    kind=kind,
                    sentence=f"{where}{sentence}",
                    others=tuple(evidence.trace.ranks),
                    step=step.title if step is not None else "",
                    lines=tuple(filter(None, (call.source for call in calls))) or (module.source,),
                    seconds=round(took, 6) if calls else None,
                )
    return list(told.values())


def _construction(module: Module) -> Iterator[Chapter]:
    if module.counted:
        values = module.counted[0].inputs[0].values
        said = f", here {values[0]}" if values else ""
        yield (
            "ddp_counted",
            f"DDP() at {module.source}: every rank tells how many parameters it has{said} ({_what(module.counted)}). "
            "Where the numbers differ, DDP raises instead of hanging later.",
            module.counted,
        )
    if module.verified:
        sentence = (
            f"Rank 0 sends the sizes and strides of its parameters ({_what(module.verified)}), and every rank compares "
            "them with its own."
        )
        yield "ddp_verified", sentence, module.verified
    if module.state:
        sent = sum(call.inputs[0].count for call in module.state if call.inputs)
        what = "parameters and buffers" if sent > module.elements else "parameters"
        number = f"{module.parameters} {what}" if what == "parameters" and module.parameters else what
        sentence = (
            f"Rank 0's {number} replace everybody's: {_size(module.state)} in "
            f"{plural(len(module.state), 'broadcast')}. DDP joins tensors of a dtype into pieces of up to 250 MiB."
        )
        yield "ddp_state", sentence, module.state


def _buffers(module: Module) -> Iterator[Chapter]:
    if module.buffers:
        sentence = (
            f"In {len(module.buffers)} of {plural(module.forwards, 'forward')} rank 0's buffers replace everybody's "
            f"({_what(module.buffers[0])}): BatchNorm's running statistics, for example. broadcast_buffers=False turns "
            "that off."
        )
        yield "ddp_buffers", sentence, [call for calls in module.buffers for call in calls]


def _reduction(module: Module) -> Iterator[Chapter]:
    reducing = [backward.buckets for backward in module.backwards if backward.buckets]
    if not reducing:
        return
    first, last = reducing[0], reducing[-1]
    shown = [f"{_size([call])} of {call.inputs[0].dtype} ({_names(call.parameters)})" for call in last[:_MOST_BUCKETS]]
    more = f"; {len(last) - _MOST_BUCKETS} more" if len(last) > _MOST_BUCKETS else ""
    sentence = (
        f"{plural(len(reducing), 'backward')} added up gradients over all ranks, a call for each bucket as soon as it "
        f"is full. {'It' if len(reducing) == 1 else 'The last'} had {plural(len(last), 'bucket')}"
        f"{f', the first {len(first)}' if len(first) != len(last) else ''}: {'; '.join(shown)}{more}."
    )
    yield "ddp_reduced", sentence, [call for calls in reducing for call in calls]
    yield from _compression(module, last)


def _rebuilding(module: Module) -> Iterator[Chapter]:
    if module.rebuilt:
        before, after = (len(layout.buckets) for layout in (module.layouts[0], module.layouts[-1]))
        now = plural(after, "bucket")
        now = f"{now} instead of {before}" if before != after else f"still {now}"
        sentence = (
            "The first backward with gradients to reduce showed in which order they become ready. In forward "
            f"{module.rebuilt_at} rank 0 sends its order ({_what(module.rebuilt)}), and the buckets are rebuilt by it: "
            f"{now}."
        )
        yield "ddp_rebuilt", sentence, module.rebuilt


def _overlap(module: Module) -> Iterator[Chapter]:
    reducing = [backward for backward in module.backwards if backward.buckets]
    total, beside = overlap(module)
    if total <= 0:
        return
    if all(len(backward.buckets) == 1 for backward in reducing):
        sentence = (
            "With one bucket, full only when the last gradient is ready, nothing of its all_reduce can run beside the "
            f"computation: {format_duration(total / len(reducing))} a step."
        )
    else:
        sentence = (
            f"{beside / total:.0%} of the time of these calls passed while gradients were still being computed. For "
            f"the rest, {format_duration((total - beside) / len(reducing))} a step, backward had nothing else to do."
        )
    yield "ddp_overlap", sentence, []


def _further(module: Module) -> Iterator[Chapter]:
    bitmaps = [call for backward in module.backwards for call in backward.bitmap]
    if bitmaps:
        sentence = (
            f"With find_unused_parameters each backward also adds up who used which parameter ({_what(bitmaps[:1])}, a "
            "number for each parameter): one that no rank used keeps its gradient as it was."
        )
        yield "ddp_unused", sentence, bitmaps
    other = [call for backward in module.backwards for call in backward.other]
    if other:
        names = listing(f"{call.op} by {call.via}" if call.via else call.op for call in other[:20])
        sentence = (
            f"{plural(len(other), 'call')} in backward carried no whole bucket ({names}): a communication hook sends "
            "something else, or they are SyncBatchNorm's or the script's own."
        )
        yield "ddp_other", sentence, other
    silent = sum(backward.quiet and not (backward.buckets or backward.other) for backward in module.backwards)
    if silent:
        sentence = (
            f"{silent} of {plural(len(module.backwards), 'backward')} sent nothing: under no_sync() gradients are only "
            "added up locally."
        )
        yield "ddp_silent", sentence, []


def _compression(module: Module, buckets: list[Call]) -> Iterator[Chapter]:
    """Buckets that travel in another dtype than the parameters have."""
    own = {call.inputs[0].dtype for call in module.state if call.inputs}
    sent = {call.inputs[0].dtype for call in buckets if call.inputs}
    if len(sent) == 1 and own and not sent & own:
        whole = next((call for call in module.state if call.inputs), None)
        width = whole.bytes_in // max(1, whole.inputs[0].count) if whole is not None else 0
        before = sum(call.inputs[0].count for call in buckets) * width
        sentence = (
            f"The buckets travel as {next(iter(sent))}, {_size(buckets)} instead of {format_bytes(before)}: a "
            "communication hook compresses them, and the gradients come back rounded."
        )
        yield "ddp_compressed", sentence, buckets


def _what(calls: Sequence[Call]) -> str:
    """`broadcast of int64 [18]`, for each call."""
    words = [f"{call.op} of {call.inputs[0].dtype} {list(call.inputs[0].shape)}" for call in calls if call.inputs]
    return listing(words)


def _size(calls: Sequence[Call]) -> str:
    return format_bytes(sum(call.bytes_in for call in calls))


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown
