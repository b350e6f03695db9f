"""What a judgement is, and the words that every one of them uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.record.result import Culprit
from lab.run.stacks import Place, shorten_stack
from lab.spec.scenario import Verdict

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
    timeout_s: float
    expected_exit: dict[int, int]
    """Exit code expected of every rank."""
    memory_bytes: int | None = None
    """Memory limit of a node."""


def head(stack: str) -> str:
    """The innermost lines of a stack."""
    return "\n".join(shorten_stack(stack).splitlines()[:TRACEBACK_LINES])


def name_ranks(ranks: list[int]) -> str:
    """`rank 3`, `ranks 0 and 2`, `ranks 0, 1 and 5`, `ranks 0-7`."""
    ranks = sorted(ranks)
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def went_alone(place: Place | None, gone: list[int]) -> str:
    """What a rank did that called a collective after most others had ended with code 0."""
    where = f" {place.sentence()}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"
