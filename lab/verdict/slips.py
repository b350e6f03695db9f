"""Ranks that made one call more or one fewer, where every call is the same operation and so nothing clashes."""

from __future__ import annotations

from collections.abc import Sequence

from lab.trace.steps import Step
from lab.verdict.evidence import Evidence
from lab.verdict.finding import Finding
from lab.words import name_ranks

_LEAST_SHIFTED = 2
"""At least this many calls must be those that the others made one call earlier or later."""


def find_slips(evidence: Evidence) -> list[Finding]:
    """In each group with a step that never ended, ranks that had been one call ahead of most others, or behind them."""
    steps_of: dict[str, list[Step]] = {}
    for step in evidence.steps:
        if not step.message:
            steps_of.setdefault(step.group.name, []).append(step)
    hung = [steps for steps in steps_of.values() if any(step.state != "completed" for step in steps)]
    found = [_slip(sorted(steps, key=lambda step: step.seq or 0)) for steps in hung]
    return [finding for finding in found if finding is not None]


def _slip(steps: Sequence[Step]) -> Finding | None:
    """The first step to which ranks came from different lines, if they were the same lines one call apart."""
    apart = next((n for n, step in enumerate(steps) if len({call.source for call in step.calls.values()}) > 1), None)
    if apart is None:
        return None
    step = steps[apart]
    lines = [call.source for call in step.calls.values()]
    common = max(sorted(set(lines)), key=lines.count)
    odd = tuple(sorted(rank for rank, call in step.calls.items() if call.source != common))
    others = tuple(sorted(rank for rank in step.calls if rank not in odd))
    if 2 * len(others) <= len(step.calls):
        return None
    after = steps[apart:]
    shifts = {_shift(_sources(after, rank), _sources(after, other)) for rank in odd for other in others}
    if len(shifts) > 1 or None in shifts:
        return None
    who = name_ranks(odd)
    less = "fewer" if shifts == {1} else "more"
    mine = tuple(dict.fromkeys(step.calls[rank].source for rank in odd))
    sentence = (
        f"{who} made one call {less} than {name_ranks(others)}: from {step.title} on they met one call off, the first "
        f"time {who} from {mine[0]} and {name_ranks(others)} from {common}."
    )
    return Finding(kind="slipped", sentence=sentence, ranks=odd, others=others, step=step.title, lines=(*mine, common))


def _sources(steps: Sequence[Step], rank: int) -> list[str]:
    return [step.calls[rank].source for step in steps if rank in step.calls]


def _shift(mine: Sequence[str], theirs: Sequence[str]) -> int | None:
    """1 where one sequence is the other without its first, -1 where it has one more at its beginning; else None."""
    for shift, ahead, behind in ((1, mine, theirs), (-1, theirs, mine)):
        pairs = list(zip(ahead, behind[1:], strict=False))
        if len(pairs) >= _LEAST_SHIFTED and all(a == b for a, b in pairs):
            return shift
    return None
