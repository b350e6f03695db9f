"""Kinds of findings of training, and differences in how ranks went through the phases of a training step.

Only differences between ranks are reported: a forward without a backward is fine if all ranks do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, Kind, Words, find_majority
from lab.diagnosis.wording import join_ranks
from lab.trace.model import Phase, RankTrace, calls_within
from lab.words import format_count, name_ranks


class TrainingKind(Kind):
    """Kinds of findings of this feature; parameters with other shapes are `shape`."""

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
    """Whether the first side did it there and the second did not."""
    first: tuple[int, ...]
    second: tuple[int, ...]
    forwards: Mapping[int, int] = field(default_factory=dict)
    """By rank."""
    backwards: Mapping[int, int] = field(default_factory=dict)
    exchanged: Mapping[int, int] = field(default_factory=dict)
    """By rank: number of backwards in which it exchanged gradients."""

    def render(self) -> Words:
        """Describe each side, and the forward or backward in which they differ."""
        first, second, number = self.first, self.second, self.number
        backwards = {rank: format_count(count, "backward") for rank, count in self.backwards.items()}
        if self.phase == "forward":
            joint, one, none = ("and", "one", "none") if self.did else ("but", "none", "one")
            forwards = {rank: format_count(self.forwards[rank], "forward") for rank in first}
            ran = [(rank, f"ran {forwards[rank]} {joint} {backwards[rank]}") for rank in first]
            after = f"{one} followed forward {number}, after which {name_ranks(second)} ran {none}"
            return f"{'; '.join(join_ranks(ran))}: {after}"
        of = {rank: f"exchanged gradients in {self.exchanged[rank]} of {backwards[rank]}" for rank in (*first, *second)}
        sides = [clause for side in (first, second) for clause in join_ranks((rank, of[rank]) for rank in side)]
        did, others = ("did", "did not") if self.did else ("did not", "did")
        return f"{'; '.join(sides)}: in backward {number} {name_ranks(first)} {did}, but {name_ranks(second)} {others}"


Flags = Sequence[bool | None]
"""For each forward or backward, whether the event followed; None if the run was over first."""


def count_phases(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first difference between the phases of ranks, for a run that did not end well."""
    ranks = {number: rank for number, rank in evidence.trace.ranks.items() if rank.recorded}
    if any(call.via.startswith("Join.") for rank in ranks.values() for call in rank.calls):
        return  # ranks that have no more inputs answer the others
    phases = {number: _outermost(rank) for number, rank in ranks.items()}
    forwards, backwards = (
        {number: [phase for phase in ours if phase.name == name] for number, ours in phases.items()}
        for name in ("forward", "backward")
    )
    exchanged: dict[int, Flags] = {}
    facts = _compare("forward", {number: _followed(ours) for number, ours in phases.items()})
    if facts is None and any(rank.modules for rank in ranks.values()):
        exchanged = {number: _exchanged(rank, backwards[number]) for number, rank in ranks.items()}
        facts = _compare("backward", exchanged)
    if facts is None:
        return
    both, phase = (*facts.first, *facts.second), backwards if exchanged else forwards
    yield replace(
        facts,
        forwards={rank: len(forwards[rank]) for rank in both},
        backwards={rank: len(backwards[rank]) for rank in both},
        exchanged={rank: sum(map(bool, exchanged[rank])) for rank in both if exchanged},
        lines=tuple(phase[rank][facts.number - 1].source for rank in both),
    )


def _outermost(rank: RankTrace) -> list[Phase]:
    """Return forwards, backwards, and steps that are in no other.

    With checkpointing, a backward can contain another.
    """
    kept: list[Phase] = []
    for phase in (phase for phase in rank.phases if phase.name in ("forward", "backward", "step")):
        if not kept or (kept[-1].end is not None and kept[-1].end <= phase.begin):
            kept.append(phase)
    return kept


def _followed(phases: Sequence[Phase]) -> Flags:
    """Return for each forward whether a backward came before the next one."""
    flags: list[bool | None] = []
    for phase in phases:
        if phase.name == "forward":
            if flags and flags[-1] is None:
                flags[-1] = False
            flags.append(None)
        elif phase.name == "backward" and flags:
            flags[-1] = True
    return flags


def _exchanged(rank: RankTrace, backwards: Sequence[Phase]) -> Flags:
    """Return for each backward whether it exchanged gradients."""
    flags: list[bool | None] = []
    for phase in backwards:
        calls = calls_within(rank.calls, phase.begin, rank.last if phase.end is None else phase.end)
        exchanged = any(call.asynchronous and call.operation.reduces for call in calls)
        flags.append(True if exchanged else None if phase.end is None else False)
    return flags


def _compare(phase: Literal["forward", "backward"], flags: Mapping[int, Flags]) -> PhaseCounts | None:
    """Return the first forward or backward at which a rank differs from most others, or of two from its own habit."""
    known = {rank: of for rank, of in flags.items() if of}
    for n in range(min(map(len, known.values()), default=0)):
        here = {rank: of[n] for rank, of in known.items()}
        if None in here.values() or len(set(here.values())) == 1:
            continue
        common, deviating = find_majority(here)
        if common is None:
            habits = {rank: {*of[:n], *of[n + 1 :]} - {None} for rank, of in known.items()}
            deviating = tuple(rank for rank, habit in habits.items() if habit == {not here[rank]})
        named = bool(deviating) and len({here[rank] for rank in deviating}) == 1 and len(deviating) < len(here)
        did = here[min(deviating if named else here)]
        first, second = (tuple(rank for rank, flag in here.items() if (flag == did) == same) for same in (True, False))
        ranks, others = (first, second) if named else ((), (*first, *second))
        return PhaseCounts(
            phase=phase, number=n + 1, did=bool(did), first=first, second=second, ranks=ranks, others=others
        )
    return None
