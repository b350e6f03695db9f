"""What is said of a run as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.frozen import dataclass
from lab.record.result import Culprit
from lab.spec.scenario import Verdict

if TYPE_CHECKING:
    from lab.diagnosis.finding import Finding


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    """One sentence, for a person."""
    culprit: Culprit | None = None
    findings: tuple[Finding, ...] = ()
    """What it rests on, the first cause first; none of a run in which all is well."""
    summary: str = ""
    """What ended the run, in short, as a clause that names who it was; empty: the reason says it."""
