"""What a run that did not pass went wrong with, the cause first."""

from __future__ import annotations

from lab.verdict.disagreement import disagreements
from lab.verdict.evidence import Evidence
from lab.verdict.failure import explain_failure
from lab.verdict.finding import Finding
from lab.verdict.hang import explain_hang


def find_causes(evidence: Evidence, culprit: int | None = None, *, ended_well: bool = False) -> list[Finding]:
    """Why a run hung or failed; what ranks called differently is found in any run.

    Args:
        evidence: of the run.
        culprit: the rank that the verdict names, if it does.
        ended_well: whether every rank ended as it was meant to, whatever its exit code.
    """
    differing = disagreements(evidence)
    unended = {step.title for step in evidence.steps if step.state != "completed"}
    causing = [finding for finding in differing if finding.kind in ("mismatch", "slipped") or finding.step in unended]
    other = [finding for finding in differing if finding not in causing]
    if ended_well:
        return differing
    if any(end.failed or end.lost for end in evidence.ends.values()):
        return [*causing, *explain_failure(evidence, culprit), *other]
    if any(end.alive for end in evidence.ends.values()):
        return [*causing, *explain_hang(evidence, causing, culprit), *other]
    return differing
