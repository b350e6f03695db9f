"""What a judgement is: a verdict, a sentence, and a culprit."""

from __future__ import annotations

from dataclasses import dataclass

from lab.record.result import Culprit
from lab.spec.scenario import Verdict


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    culprit: Culprit | None = None
