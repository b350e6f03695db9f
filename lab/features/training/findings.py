"""The findings of training: their kinds, their facts, and the words for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from lab.diagnosis.finding import Facts, Kind, Side, Words, WordTable
from lab.diagnosis.wording import at, join_ranks
from lab.words import format_bytes, format_duration, listing, name_ranks, ordinal, plural


class TrainingKind(Kind):
    """The kinds of findings of this feature; parameters of other shapes are `shape`."""

    COUNTS = "counts"
    PARAMETER_ORDER = "parameter_order"
    DIVERGED = "diverged"
    DDP_COUNTED = "ddp_counted", 4, "usual"
    DDP_VERIFIED = "ddp_verified", 4, "usual"
    DDP_STATE = "ddp_state", 4, "usual"
    DDP_BUFFERS = "ddp_buffers", 4
    DDP_REDUCED = "ddp_reduced", 4
    DDP_COMPRESSED = "ddp_compressed", 4
    DDP_REBUILT = "ddp_rebuilt", 4
    DDP_OVERLAP = "ddp_overlap", 4
    DDP_UNUSED = "ddp_unused", 4
    DDP_OTHER = "ddp_other", 4
    DDP_SILENT = "ddp_silent", 4


class PhaseCounts(Facts):
    """The first difference in how ranks went through their training steps."""

    phase: Literal["forward", "backward"]
    number: int
    did: bool
    """Whether the first side did it there, and the other did not."""
    first: tuple[int, ...]
    second: tuple[int, ...]
    forwards: Mapping[int, int] = field(default_factory=dict)
    """By rank."""
    backwards: Mapping[int, int] = field(default_factory=dict)
    exchanged: Mapping[int, int] = field(default_factory=dict)
    """In how many backwards a rank exchanged gradients."""


class Replicas(Facts):
    """Replicas of a DDP module that are not alike."""

    how: Literal["parameters", "parameter", "order", "norm", "steps"]
    at: tuple[str, ...] = ()
    """Where the module was made."""
    sides: tuple[Side, ...] = ()
    only_here: tuple[str, ...] = ()
    """Parameters that only the odd ranks have."""
    place: int = 0
    """Number of the parameter, from 1."""
    parameter: str = ""
    steps: int = 0
    unused_forward: bool = False
    no_exchange: bool = False
    stepped: tuple[int, ...] = ()
    stepped_at: tuple[str, ...] = ()


class WeightsApart(Facts):
    """Weights that are trained by the same gradients, and differ."""

    reduced_at: tuple[str, ...]
    steps: int
    stepped_at: tuple[str, ...]
    place: int
    sides: tuple[Side, ...]


class DdpStory(Facts):
    """What a DDP module sent, and why."""

    module: int = 0
    """Its number, where there are several."""
    made_at: str = ""
    what: tuple[str, ...] = ()
    """The calls, or their contents, in short."""
    count: int = 0
    of: int = 0
    bytes: int = 0
    before: int = 0
    first: int = 0
    more: int = 0
    number: int = 0
    share: float = 0.0
    step_s: float = 0.0
    single_bucket: bool = False
    with_buffers: bool = False
    dtype: str = ""
    parameters: int | None = None


_MOST_NAMES = 3


def _phase_counts(facts: PhaseCounts) -> Words:
    first, second, number = facts.first, facts.second, facts.number
    if facts.phase == "forward":
        joint, one, none = ("and", "one", "none") if facts.did else ("but", "none", "one")
        sides = join_ranks(
            (rank, f"ran {plural(facts.forwards[rank], 'forward')} {joint} {plural(facts.backwards[rank], 'backward')}")
            for rank in first
        )
        return f"{'; '.join(sides)}: {one} followed forward {number}, after which {name_ranks(second)} ran {none}"
    of = {rank: f"{facts.exchanged[rank]} of {plural(facts.backwards[rank], 'backward')}" for rank in (*first, *second)}
    sides = [
        clause
        for side in (first, second)
        for clause in join_ranks((rank, f"exchanged gradients in {of[rank]}") for rank in side)
    ]
    did, others = ("did", "did not") if facts.did else ("did not", "did")
    return f"{'; '.join(sides)}: in backward {number} {name_ranks(first)} {did}, and {name_ranks(second)} {others}"


def on_sides(sides: Sequence[Side]) -> str:
    """`3 steps on rank 0 and 4 steps on rank 1`."""
    return listing(f"{side.what} on {name_ranks(side.ranks)}" for side in sides)


def _have(sides: Sequence[Side]) -> str:
    return listing(f"{name_ranks(one.ranks)} {'has' if len(one.ranks) == 1 else 'have'} {one.what}" for one in sides)


def _replicas(facts: Replicas) -> Words:
    title, ranks, place = f"the DDP module{at(facts.at)}", name_ranks(facts.ranks), ordinal(facts.place)
    if facts.how == "parameters":
        names = listing(facts.only_here[:_MOST_NAMES]) + (", …" if len(facts.only_here) > _MOST_NAMES else "")
        extra = f"; {names} only on {ranks}" if names else ""
        return f"the replicas of {title} are not alike: {_have(facts.sides)}{extra}"
    if facts.how == "parameter":
        return f"the replicas of {title} are not alike: as {place} parameter {_have(facts.sides)}"
    if facts.how == "order":
        return (
            f"the replicas of {title} have the same parameters in another order: as {place} {_have(facts.sides)}",
            "DDP goes by their number, so gradients of different parameters were added up.",
        )
    if facts.how == "norm":
        why = "No backward had exchanged gradients." if facts.no_exchange else ""
        if facts.unused_forward:
            why = "The forward of the module was never called: what it holds was called past it."
        after = f"after {plural(facts.steps, 'optimizer step')} the replicas of {title} are no longer the same"
        return f"{after}: the norm of {facts.parameter} is {on_sides(facts.sides)}", why
    never = [rank for rank in (*facts.ranks, *facts.others) if rank not in facts.stepped]
    return (
        f"{name_ranks(facts.stepped)} stepped the parameters of {title}{at(facts.stepped_at)}, and "
        f"{name_ranks(never)} never did, where all exchanged their gradients: the replicas are no longer the same"
    )


def _weights_apart(facts: WeightsApart) -> Words:
    return (
        f"{name_ranks((*facts.ranks, *facts.others))} train by the same gradients, reduced at "
        f"{listing(facts.reduced_at)}, but not the same weights: after {plural(facts.steps, 'step')} of the optimizer"
        f"{at(facts.stepped_at)} the norm of its {ordinal(facts.place)} parameter is {on_sides(facts.sides)}"
    )


# -- DistributedDataParallel


def _state(one: DdpStory) -> Words:
    what = f"{one.parameters} parameters" if one.parameters else "parameters"
    what = "parameters and buffers" if one.with_buffers else what
    return (
        f"Rank 0's {what} replace everybody's: {format_bytes(one.bytes)} in {plural(one.count, 'broadcast')}",
        "DDP joins tensors of a dtype into pieces of up to 250 MiB.",
    )


def _reduced(one: DdpStory) -> Words:
    which, more = "It" if one.number == 1 else "The last", f"; {one.more} more" if one.more else ""
    first = f", the first {one.first}" if one.first != one.count else ""
    return (
        f"{plural(one.number, 'backward')} added up gradients over all ranks, a call for each bucket as soon as it is "
        "full",
        f"{which} had {plural(one.count, 'bucket')}{first}: {'; '.join(one.what)}{more}.",
    )


def _rebuilt(one: DdpStory) -> Words:
    buckets = plural(one.count, "bucket")
    became = f"still {buckets}" if one.before == one.count else f"{buckets} instead of {one.before}"
    return (
        "The first backward with gradients to reduce showed in which order they become ready",
        f"In forward {one.number} rank 0 sends its order ({listing(one.what)}), and the buckets are rebuilt by it: "
        f"{became}.",
    )


def _overlap(one: DdpStory) -> Words:
    if one.single_bucket:
        return (
            "With one bucket, full only when the last gradient is ready, nothing of its all_reduce can run beside the "
            f"computation: {format_duration(one.step_s)} a step"
        )
    return (
        f"{one.share:.0%} of the time of these calls passed while gradients were still being computed",
        f"For the rest, {format_duration(one.step_s)} a step, backward had nothing else to do.",
    )


_DDP: Mapping[TrainingKind, Callable[[DdpStory], Words]] = {
    TrainingKind.DDP_COUNTED: lambda one: (
        f"DDP() at {one.made_at}: every rank tells how many parameters it has"
        f"{f', here {one.parameters}' if one.parameters is not None else ''} ({listing(one.what)})",
        "Where the numbers differ, DDP raises instead of hanging later.",
    ),
    TrainingKind.DDP_VERIFIED: lambda one: (
        f"Rank 0 sends the sizes and strides of its parameters ({listing(one.what)}), and every rank compares them "
        "with its own"
    ),
    TrainingKind.DDP_STATE: _state,
    TrainingKind.DDP_BUFFERS: lambda one: (
        f"In {one.count} of {plural(one.of, 'forward')} rank 0's buffers replace everybody's ({listing(one.what)}): "
        "BatchNorm's running statistics, for example",
        "broadcast_buffers=False turns that off.",
    ),
    TrainingKind.DDP_REDUCED: _reduced,
    TrainingKind.DDP_COMPRESSED: lambda one: (
        f"The buckets travel as {one.dtype}, {format_bytes(one.bytes)} instead of {format_bytes(one.before)}: a "
        "communication hook compresses them, and the gradients come back rounded"
    ),
    TrainingKind.DDP_REBUILT: _rebuilt,
    TrainingKind.DDP_OVERLAP: _overlap,
    TrainingKind.DDP_UNUSED: lambda one: (
        f"With find_unused_parameters each backward also adds up who used which parameter ({listing(one.what)}, a "
        "number for each parameter): one that no rank used keeps its gradient as it was"
    ),
    TrainingKind.DDP_OTHER: lambda one: (
        f"{plural(one.count, 'call')} in backward carried no whole bucket ({listing(one.what)}): a communication hook "
        "sends something else, or they are SyncBatchNorm's or the script's own"
    ),
    TrainingKind.DDP_SILENT: lambda one: (
        f"{one.count} of {plural(one.of, 'backward')} sent nothing: under no_sync() gradients are only added up locally"
    ),
}


def _of_module(render: Callable[[DdpStory], Words]) -> Callable[[DdpStory], Words]:
    """With the module that it is about, where there are several."""

    def rendered(facts: DdpStory) -> Words:
        words = render(facts)
        head, *rest = (words,) if isinstance(words, str) else words
        where = f"DDP module {facts.module} ({facts.made_at}): " if facts.module else ""
        return f"{where}{head}", *rest

    return rendered


WORDS: WordTable = {
    PhaseCounts: _phase_counts,
    Replicas: _replicas,
    WeightsApart: _weights_apart,
    **{kind: _of_module(render) for kind, render in _DDP.items()},
}
