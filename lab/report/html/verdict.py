"""The verdict and what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.explain.model import Explanation
from lab.report.palette import UNKNOWN, VERDICTS, Tone
from lab.words import format_value

_MOST_TRACEBACK_LINES = 25
_MOST_EXPECTATIONS = 30
_LONGEST_VALUE = 200


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


def verdict_view(result: Mapping[str, Any], explanation: Explanation) -> VerdictView:
    """The head of the page of a run.

    Args:
        result: as in `result.json`.
        explanation: of the run.
    """
    word = str(result.get("verdict", "error"))
    culprit = result.get("culprit") or {}
    who = ""
    if culprit:
        who = culprit["node"] if culprit.get("rank") is None else f"rank {culprit['rank']} on {culprit['node']}"
    return VerdictView(
        word=word,
        tone=VERDICTS.get(word, UNKNOWN),
        reason=str(result.get("reason", "")),
        culprit=who,
        error=str(culprit.get("error", "")),
        traceback=_last_lines(str(culprit.get("traceback") or "")),
        stacks=[(rank["rank"], _last_lines(rank["stack"])) for rank in result.get("ranks") or () if rank.get("stack")],
        unmet=_unmet(result) if word != "passed" else [],
        explanation=[finding.sentence for finding in explanation.findings],
    )


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = ["…"] if len(lines) > _MOST_TRACEBACK_LINES else []
    return "\n".join([*cut, *lines[-_MOST_TRACEBACK_LINES:]])


def _unmet(result: Mapping[str, Any]) -> list[str]:
    unmet = [item for item in result.get("expectations") or () if not item.get("met")]
    sentences = []
    for item in unmet[:_MOST_EXPECTATIONS]:
        where = f"rank {item['rank']}: " if item.get("rank") is not None else ""
        sentences.append(
            f"{where}{item.get('what')}: expected {format_value(item.get('expected'), _LONGEST_VALUE)}, "
            f"got {format_value(item.get('got'), _LONGEST_VALUE)}"
        )
    if len(unmet) > _MOST_EXPECTATIONS:
        sentences.append(f"and {len(unmet) - _MOST_EXPECTATIONS} more")
    return sentences
