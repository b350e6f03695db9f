"""The verdict and what explains it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.explain.model import Explanation
from lab.record.result import Culprit, Result
from lab.report.palette import VERDICTS, Tone

_MOST_TRACEBACK_LINES = 25
_MOST_EXPECTATIONS = 30


@dataclass(frozen=True)
class VerdictView:
    """What stands at the head of the page."""

    word: str
    tone: Tone
    reason: str
    culprit: str
    """`rank 2 on node2`; empty where there is none."""
    error: str
    traceback: str
    stacks: list[tuple[int, str]]
    """Rank and Python stack of everybody who was found hanging."""
    unmet: list[str]
    """Expectations that were not met, a sentence each."""
    explanation: list[str]
    """Sentences, in order."""


def verdict_view(result: Result, explanation: Explanation) -> VerdictView:
    """The head of the page of a run."""
    culprit = result.culprit or Culprit()
    unmet = [expectation.sentence() for expectation in result.unmet] if not result.passed else []
    more = [f"and {len(unmet) - _MOST_EXPECTATIONS} more"] if len(unmet) > _MOST_EXPECTATIONS else []
    return VerdictView(
        word=result.verdict,
        tone=VERDICTS[result.verdict],
        reason=result.reason,
        culprit=culprit.who,
        error=culprit.error,
        traceback=_last_lines(culprit.traceback),
        stacks=[(rank.rank, _last_lines(rank.stack)) for rank in result.ranks if rank.stack],
        unmet=[*unmet[:_MOST_EXPECTATIONS], *more],
        explanation=[finding.sentence for finding in explanation.findings],
    )


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = ["…"] if len(lines) > _MOST_TRACEBACK_LINES else []
    return "\n".join([*cut, *lines[-_MOST_TRACEBACK_LINES:]])
