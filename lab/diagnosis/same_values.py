"""Reductions to which all ranks bring the same: the same data everywhere, or gradients that were reduced already."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step
from lab.words import listing, name_ranks, plural

_LEAST_STEPS = 2
_ADDS = ("SUM", "AVG")


def find_same_values(evidence: Evidence) -> list[Finding]:
    """For each line whose reductions of floats brought nothing but the same from all ranks: that it was so."""
    by_line: dict[tuple[str, str], list[tuple[Step, Hashable | None]]] = {}
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > 1 and not step.missing:
            told = [brought(call) for call in step.calls.values()]
            if None in told:
                continue  # counts, flags, and what is too plain to say anything
            line = next(iter(step.calls.values())).source
            by_line.setdefault((step.op, line), []).append((step, told[0] if len(set(told)) == 1 else None))
    alike = {
        line: steps
        for line, steps in by_line.items()
        if all(told is not None for _, told in steps) and len({told for _, told in steps}) >= _LEAST_STEPS
    }
    return [_finding([step for step, _ in steps], len(alike) < len(by_line)) for steps in alike.values()]


def brought(call: Call) -> Hashable | None:
    """What a call brought, so that equal things are equal; None where that would say nothing."""
    told = tuple(_told(buffer) for buffer in call.inputs)
    return told if call.reduce_op in _ADDS and told and any(one is not None for one in told) else None


def _told(buffer: Buffer) -> Hashable | None:
    if not buffer.dtype.startswith(("float", "bfloat")):
        return None
    if buffer.values is not None:
        kinds = {*map(type, buffer.values)}
        numbers = buffer.values if kinds == {float} else [one for one in buffer.values if not isinstance(one, str)]
        return tuple(buffer.values) if list not in kinds and _varied(numbers) else None  # no floats are pairs
    summary = buffer.summary or {}
    if not summary.get("hash") or summary.get("min") == summary.get("max"):
        return None
    return tuple(str(summary.get(key)) for key in ("n", "hash", "norm", "min", "max"))


def _varied(numbers: Sequence[float]) -> bool:
    """Whether numbers differ from each other and are not all whole: neither ones nor counts."""
    return any(number % 1 for number in numbers) and any(number != numbers[0] for number in numbers)


def _finding(steps: list[Step], some_differ: bool) -> Finding:
    first, calls = steps[0], list(steps[0].calls.values())
    ranks = name_ranks(first.calls)
    what = f"each of {plural(len(steps), first.op)}" if len(steps) > 1 else first.title
    where = listing(call.source for call in calls)
    phase = " of gradients" if calls[0].phase == "backward" else ""
    why = "what they bring has been reduced before, or all of them have the same data"
    if not some_differ:
        why = "all of them have the same data, or what they bring has been reduced before"
    sentence = f"{ranks} brought the same values to {what}{phase}{f' at {where}' if where else ''}: as if {why}."
    return Finding(kind="same_values", sentence=sentence, others=tuple(first.calls), step=first.title, lines=(where,))
