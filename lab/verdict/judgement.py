"""What a judgement is: a verdict, a sentence, and a culprit with its last words."""

from __future__ import annotations

from dataclasses import dataclass

from lab.record.result import Culprit
from lab.spec.scenario import Verdict
from lab.verdict.facts import RankFacts
from lab.verdict.stacks import CodePlace, shorten_paths, shorten_stack
from lab.words import name_ranks

_LINES = 12
"""Lines of a traceback or stack that a verdict shows."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    culprit: Culprit | None = None


def blame(rank: RankFacts, error: str, traceback: str = "") -> Culprit:
    """A rank as the culprit, with the end of its traceback or, where the lab stopped it, the innermost of its stack.

    Args:
        rank: whose fault it is.
        error: what it did, as the end of a sentence that begins with its name.
        traceback: somebody else's, where it has nothing to show itself.
    """
    raised = "" if rank.stopped else _tail(rank.traceback)
    shown = raised or _head(rank.stack) or _tail(traceback)
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=shown)


def went_alone(place: CodePlace | None, gone: list[int]) -> str:
    """What a rank did that called a collective after most others had ended with code 0."""
    where = f" {place.sentence()}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"


def _head(stack: str) -> str:
    return "\n".join(shorten_stack(stack).splitlines()[:_LINES])


def _tail(traceback: str) -> str:
    return "\n".join(shorten_paths(traceback).strip().splitlines()[-_LINES:])
