"""How often each rank went through the phases of a training step: forwards without a backward, gradients not exchanged.

Only what differs between ranks is told: a forward without a backward is as good as any other where all ranks do so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, majority
from lab.features.training.findings import PhaseCounts
from lab.trace.model import Mark, RankTrace, calls_within

Flags = Sequence[bool | None]
"""Of each forward or backward, whether something came of it; None where the run was over before that was known."""


def count_phases(evidence: Evidence) -> list[Finding]:
    """In a run that broke, the first difference in how its ranks went through their training steps."""
    ranks = {number: rank for number, rank in evidence.trace.ranks.items() if rank.recorded}
    marks = {number: _outermost(rank) for number, rank in ranks.items()}
    forwards, backwards = (
        {number: [mark for mark in ours if mark.name == name] for number, ours in marks.items()}
        for name in ("forward", "backward")
    )
    exchanged: dict[int, Flags] = {}
    facts = _compare("forward", {number: _followed(ours) for number, ours in marks.items()})
    if facts is None and any(rank.modules for rank in ranks.values()):
        exchanged = {number: _exchanged(rank, backwards[number]) for number, rank in ranks.items()}
        facts = _compare("backward", exchanged)
    if facts is None:
        return []
    both, phase = (*facts.first, *facts.second), backwards if exchanged else forwards
    whole = replace(
        facts,
        forwards={rank: len(forwards[rank]) for rank in both},
        backwards={rank: len(backwards[rank]) for rank in both},
        exchanged={rank: sum(map(bool, exchanged[rank])) for rank in both if exchanged},
        lines=tuple(phase[rank][facts.number - 1].source for rank in both),
    )
    return [whole]


def _outermost(rank: RankTrace) -> list[Mark]:
    """Forwards, backwards and steps that lie within no other: of a checkpoint, not the backward inside a backward."""
    kept: list[Mark] = []
    for mark in rank.marks:
        if mark.name in ("forward", "backward", "step"):
            last = kept[-1] if kept else None
            if last is None or (last.end is not None and last.end <= mark.begin):
                kept.append(mark)
    return kept


def _followed(marks: Sequence[Mark]) -> Flags:
    """Of each forward, whether a backward came before the next one."""
    flags: list[bool | None] = []
    for mark in marks:
        if mark.name == "forward":
            if flags and flags[-1] is None:
                flags[-1] = False
            flags.append(None)
        elif mark.name == "backward" and flags:
            flags[-1] = True
    return flags


def _exchanged(rank: RankTrace, backwards: Sequence[Mark]) -> Flags:
    """Of each backward, whether it exchanged gradients."""
    flags: list[bool | None] = []
    for mark in backwards:
        calls = calls_within(rank.calls, mark.begin, rank.last if mark.end is None else mark.end)
        exchanged = any(call.asynchronous and call.operation.reduces for call in calls)
        flags.append(True if exchanged else None if mark.end is None else False)
    return flags


def _compare(phase: Literal["forward", "backward"], flags: Mapping[int, Flags]) -> PhaseCounts | None:
    """The first forward or backward at which a rank differs from most others, or of two from its own habit."""
    known = {rank: of for rank, of in flags.items() if of}
    for n in range(min(map(len, known.values()), default=0)):
        here = {rank: of[n] for rank, of in known.items()}
        if None in here.values() or len(set(here.values())) == 1:
            continue
        common, odd = majority(here)
        if common is None:
            habits = {rank: majority(dict(enumerate(of)))[0] for rank, of in known.items()}
            odd = tuple(rank for rank, habit in habits.items() if habit is not None and here[rank] != habit)
        named = bool(odd) and len({here[rank] for rank in odd}) == 1 and len(odd) < len(here)
        did = here[min(odd if named else here)]
        first, second = (tuple(rank for rank, flag in here.items() if (flag == did) == same) for same in (True, False))
        ranks, others = (first, second) if named else ((), (*first, *second))
        return PhaseCounts(
            phase=phase, number=n + 1, did=bool(did), first=first, second=second, ranks=ranks, others=others
        )
    return None
