"""What a judgement is, and the words that every one of them uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.record.read import Record
from lab.record.result import Culprit
from lab.spec.scenario import Verdict
from lab.verdict.stacks import Place, shorten_stack
from lab.words import name_ranks

TRACEBACK_LINES = 12
"""Lines of a traceback or stack that a verdict shows."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    culprit: Culprit | None = None


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a sentence about a run needs to know beside its facts."""

    folder: Path
    """The script's folder on the host."""
    record: Record | None = None
    """Where the traces of the run are, if it has any."""


def head(stack: str) -> str:
    """The innermost lines of a stack."""
    return "\n".join(shorten_stack(stack).splitlines()[:TRACEBACK_LINES])


def went_alone(place: Place | None, gone: list[int]) -> str:
    """What a rank did that called a collective after most others had ended with code 0."""
    where = f" {place.sentence()}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"
