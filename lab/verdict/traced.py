"""What the trace adds to a verdict: whose call was wrong, where stacks and errors alone do not tell."""

from __future__ import annotations

from collections.abc import Collection

from lab.record.layout import TRACE
from lab.record.read import Record
from lab.verdict.causes import find_causes
from lab.verdict.disagreement import disagreements
from lab.verdict.evidence import Evidence, read_evidence
from lab.verdict.finding import Finding
from lab.verdict.judgement import Context

NOBODYS_FAULT = frozenset({"deadlock", "mismatch", "dtype", "shape", "reduce_op", "root", "splits"})
"""Findings that, where they name nobody, say that nobody can be named."""
_MOST_BYTES = 16 << 20
"""A verdict does not wait until longer traces have been read; `lab explain` does."""


def cause_of_hang(context: Context) -> Finding | None:
    """Why a run did not go on; None where its trace does not say."""
    evidence = _evidence(context)
    if evidence is None:
        return None
    found = find_causes(evidence)
    return found[0] if found and found[0].step else None


def odd_call(context: Context) -> Finding | None:
    """A step that never ended because one rank called it otherwise than most others."""
    evidence = _evidence(context)
    if evidence is None:
        return None
    unended = {step.title for step in evidence.steps if step.state != "completed"}
    return next((found for found in disagreements(evidence) if found.ranks and found.step in unended), None)


def needed_by(context: Context, rank: int) -> Collection[int]:
    """Ranks that never came to the call that a rank failed in."""
    evidence = _evidence(context)
    calls = evidence.calls(rank) if evidence is not None else []
    call = next((call for call in calls if call.state != "completed"), None)
    step = evidence.step(call) if evidence is not None and call is not None else None
    return step.missing if step is not None else ()


def _trace_bytes(record: Record) -> int:
    folder = record.path / TRACE
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def _evidence(context: Context) -> Evidence | None:
    if context.record is None or _trace_bytes(context.record) > _MOST_BYTES:
        return None
    evidence = read_evidence(context.record)
    return evidence if evidence.traced else None
