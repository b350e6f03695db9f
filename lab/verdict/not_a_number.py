"""Ranks that bring NaN to a reduction, from which everybody gets it."""

from __future__ import annotations

import math

from lab.trace.model import Buffer
from lab.verdict.ends import at_lines
from lab.verdict.evidence import Evidence
from lab.verdict.finding import Finding
from lab.words import name_ranks


def find_not_a_number(evidence: Evidence) -> list[Finding]:
    """The first reduction to which a rank brought NaN; after it the others have NaN because of that one."""
    for step in evidence.steps:
        if step.message or not step.operation.reduces:
            continue
        guilty = tuple(rank for rank, call in sorted(step.calls.items()) if any(map(_holds_nan, call.inputs)))
        if guilty:
            others = tuple(rank for rank in sorted(step.calls) if rank not in guilty)
            where = at_lines(step.calls[rank] for rank in guilty)
            sentence = f"{name_ranks(guilty)} brought NaN to {step.title}{where}, the first NaN on record"
            sentence += "; who gets its result gets NaN."
            lines = tuple(step.calls[rank].source for rank in (*guilty, *others))
            return [
                Finding(kind="nonfinite", sentence=sentence, ranks=guilty, others=others, step=step.title, lines=lines)
            ]
    return []


def _holds_nan(buffer: Buffer) -> bool:
    if buffer.values is not None:
        return any(value != value or value == "nan" for value in buffer.values)
    norm = (buffer.summary or {}).get("norm")
    return norm == "nan" or (isinstance(norm, float) and math.isnan(norm))
