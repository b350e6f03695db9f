"""The findings of training: their kinds, their facts, and the words for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

from lab.diagnosis.finding import Finding, Kind, Side, Words
from lab.diagnosis.wording import at, join_ranks
from lab.words import format_bytes, format_duration, listing, name_ranks, ordinal, plural

_MOST_NAMES = 3


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


class PhaseCounts(Finding):
    """The first difference in how ranks went through their training steps."""

    kind: Kind = TrainingKind.COUNTS
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

    def render(self) -> Words:
        """What each side did, and in which forward or backward they parted."""
        first, second, number = self.first, self.second, self.number
        if self.phase == "forward":
            joint, one, none = ("and", "one", "none") if self.did else ("but", "none", "one")
            sides = join_ranks(
                (
                    rank,
                    f"ran {plural(self.forwards[rank], 'forward')} {joint} {plural(self.backwards[rank], 'backward')}",
                )
                for rank in first
            )
            return f"{'; '.join(sides)}: {one} followed forward {number}, after which {name_ranks(second)} ran {none}"
        of = {
            rank: f"{self.exchanged[rank]} of {plural(self.backwards[rank], 'backward')}" for rank in (*first, *second)
        }
        sides = [
            clause
            for side in (first, second)
            for clause in join_ranks((rank, f"exchanged gradients in {of[rank]}") for rank in side)
        ]
        did, others = ("did", "did not") if self.did else ("did not", "did")
        return f"{'; '.join(sides)}: in backward {number} {name_ranks(first)} {did}, and {name_ranks(second)} {others}"


class Replicas(Finding):
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

    def render(self) -> Words:
        """In what the replicas differ."""
        title, ranks, place = f"the DDP module{at(self.at)}", name_ranks(self.ranks), ordinal(self.place)
        if self.how == "parameters":
            names = listing(self.only_here[:_MOST_NAMES]) + (", …" if len(self.only_here) > _MOST_NAMES else "")
            extra = f"; {names} only on {ranks}" if names else ""
            return f"the replicas of {title} are not alike: {_have(self.sides)}{extra}"
        if self.how == "parameter":
            return f"the replicas of {title} are not alike: as {place} parameter {_have(self.sides)}"
        if self.how == "order":
            return (
                f"the replicas of {title} have the same parameters in another order: as {place} {_have(self.sides)}",
                "DDP goes by their number, so gradients of different parameters were added up.",
            )
        if self.how == "norm":
            why = "No backward had exchanged gradients." if self.no_exchange else ""
            if self.unused_forward:
                why = "The forward of the module was never called: what it holds was called past it."
            after = f"after {plural(self.steps, 'optimizer step')} the replicas of {title} are no longer the same"
            return f"{after}: the norm of {self.parameter} is {on_sides(self.sides)}", why
        never = [rank for rank in (*self.ranks, *self.others) if rank not in self.stepped]
        return (
            f"{name_ranks(self.stepped)} stepped the parameters of {title}{at(self.stepped_at)}, and "
            f"{name_ranks(never)} never did, where all exchanged their gradients: the replicas are no longer the same"
        )


class WeightsApart(Finding):
    """Weights that are trained by the same gradients, and differ."""

    kind: Kind = TrainingKind.DIVERGED
    reduced_at: tuple[str, ...]
    steps: int
    stepped_at: tuple[str, ...]
    place: int
    sides: tuple[Side, ...]

    def render(self) -> Words:
        """Where their gradients were reduced, and in what the weights differ."""
        return (
            f"{name_ranks((*self.ranks, *self.others))} train by the same gradients, reduced at "
            f"{listing(self.reduced_at)}, but not the same weights: after {plural(self.steps, 'step')} of the optimizer"
            f"{at(self.stepped_at)} the norm of its {ordinal(self.place)} parameter is {on_sides(self.sides)}"
        )


def on_sides(sides: Sequence[Side]) -> str:
    """`3 steps on rank 0 and 4 steps on rank 1`."""
    return listing(f"{side.what} on {name_ranks(side.ranks)}" for side in sides)


def _have(sides: Sequence[Side]) -> str:
    return listing(f"{name_ranks(one.ranks)} {'has' if len(one.ranks) == 1 else 'have'} {one.what}" for one in sides)


# -- DistributedDataParallel


class DdpStory(Finding):
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

    def render(self) -> Words:
        """What it sent, with the module, where there are several."""
        head, *rest = self._chapter()
        where = f"DDP module {self.module} ({self.made_at}): " if self.module else ""
        return f"{where}{head}", *rest

    def _chapter(self) -> tuple[str, ...]:
        calls = listing(self.what)
        match self.kind:
            case TrainingKind.DDP_COUNTED:
                here = f", here {self.parameters}" if self.parameters is not None else ""
                return (
                    f"DDP() at {self.made_at}: every rank tells how many parameters it has{here} ({calls})",
                    "Where the numbers differ, DDP raises instead of hanging later.",
                )
            case TrainingKind.DDP_VERIFIED:
                sent = f"Rank 0 sends the sizes and strides of its parameters ({calls})"
                return (f"{sent}, and every rank compares them with its own",)
            case TrainingKind.DDP_STATE:
                what = f"{self.parameters} parameters" if self.parameters else "parameters"
                what = "parameters and buffers" if self.with_buffers else what
                size = f"{format_bytes(self.bytes)} in {plural(self.count, 'broadcast')}"
                return (
                    f"Rank 0's {what} replace everybody's: {size}",
                    "DDP joins tensors of a dtype into pieces of up to 250 MiB.",
                )
            case TrainingKind.DDP_BUFFERS:
                forwards = f"{self.count} of {plural(self.of, 'forward')}"
                head = f"In {forwards} rank 0's buffers replace everybody's ({calls})"
                return f"{head}: BatchNorm's running statistics, for example", "broadcast_buffers=False turns that off."
            case TrainingKind.DDP_REDUCED:
                which, more = "It" if self.number == 1 else "The last", f"; {self.more} more" if self.more else ""
                first = f", the first {self.first}" if self.first != self.count else ""
                return (
                    f"{plural(self.number, 'backward')} added up gradients over all ranks, a call for each bucket as "
                    "soon as it is full",
                    f"{which} had {plural(self.count, 'bucket')}{first}: {'; '.join(self.what)}{more}.",
                )
            case TrainingKind.DDP_COMPRESSED:
                sizes = f"{format_bytes(self.bytes)} instead of {format_bytes(self.before)}"
                hook = "a communication hook compresses them, and the gradients come back rounded"
                return (f"The buckets travel as {self.dtype}, {sizes}: {hook}",)
            case TrainingKind.DDP_REBUILT:
                buckets = plural(self.count, "bucket")
                became = f"still {buckets}" if self.before == self.count else f"{buckets} instead of {self.before}"
                order = f"In forward {self.number} rank 0 sends its order ({calls})"
                return (
                    "The first backward with gradients to reduce showed in which order they become ready",
                    f"{order}, and the buckets are rebuilt by it: {became}.",
                )
            case TrainingKind.DDP_OVERLAP if self.single_bucket:
                beside = "nothing of its all_reduce can run beside the computation"
                full = f"With one bucket, full only when the last gradient is ready, {beside}"
                return (f"{full}: {format_duration(self.step_s)} a step",)
            case TrainingKind.DDP_OVERLAP:
                return (
                    f"{self.share:.0%} of the time of these calls passed while gradients were still being computed",
                    f"For the rest, {format_duration(self.step_s)} a step, backward had nothing else to do.",
                )
            case TrainingKind.DDP_UNUSED:
                used = f"each backward also adds up who used which parameter ({calls}, a number for each parameter)"
                return (f"With find_unused_parameters {used}: one that no rank used keeps its gradient as it was",)
            case TrainingKind.DDP_OTHER:
                carried = f"{plural(self.count, 'call')} in backward carried no whole bucket ({calls})"
                whose = "a communication hook sends something else, or they are SyncBatchNorm's or the script's own"
                return (f"{carried}: {whose}",)
        backwards = f"{self.count} of {plural(self.of, 'backward')}"
        return (f"{backwards} sent nothing: under no_sync() gradients are only added up locally",)
