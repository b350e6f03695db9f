"""Find what went wrong in a run, the cause first. The verdict and every explanation use this."""

from __future__ import annotations

from lab.diagnosis.ends import find_external_causes
from lab.diagnosis.evidence import Evidence, apply_rules
from lab.diagnosis.failure import explain_failure
from lab.diagnosis.finding import Finding, FindingKind
from lab.diagnosis.hang import explain_hang, split_disagreements


def find_causes(evidence: Evidence, culprit: int | None = None, *, ended_well: bool = False) -> list[Finding]:
    """Return why a run hung or failed, and what ranks called differently in any run.

    Args:
        evidence: The run.
        culprit: The rank that the verdict names, if there is a verdict already.
        ended_well: Whether the run neither hung nor failed.
    """
    ranks, lost_nodes = evidence.facts.ranks, evidence.facts.lost_nodes  # not those of an engine that was lost
    silent = apply_rules(evidence, "state", "results", "values", "hints")
    if ended_well or not (lost_nodes or any(rank.failed or rank.alive for rank in ranks)):
        return [*apply_rules(evidence, "disagreements"), *silent]
    stopping, other = split_disagreements(evidence)
    stopping = [*find_external_causes(evidence), *stopping]
    counts = apply_rules(evidence, "counts")
    refused = [finding for finding in silent if finding.kind is FindingKind.SHAPE]
    failed = bool(lost_nodes) or any(rank.failed for rank in ranks)
    ends = explain_failure(evidence, culprit) if failed else explain_hang(evidence, stopping)
    # If different counts explain why a rank was absent, they come before its absence.
    absent = ends[0].ranks if ends and "absence" in ends[0].kind.properties else ()
    why = [finding for finding in counts if set(finding.ranks) & set(absent)]
    # Ranks may legally differ in their counts. If another rank is known to be the cause, they name nobody.
    named = {rank for finding in (*stopping, *ends)[:1] for rank in finding.ranks}
    counts = [finding for finding in counts if not named or not finding.ranks or named & {*finding.ranks}]
    candidates = [*refused, *stopping, *why, *ends, *counts, *other, *silent]
    return [finding for n, finding in enumerate(candidates) if finding not in candidates[:n]]


_UNLIKE = (
    FindingKind.MISMATCH,
    FindingKind.DTYPE,
    FindingKind.SHAPE,
    FindingKind.SPLITS,
    FindingKind.REDUCE_OP,
    FindingKind.ROOT,
)
"""What a backend may tolerate, with wrong values."""


def find_silent_errors(evidence: Evidence) -> list[Finding]:
    """Return certain errors in a run in which nothing failed."""
    unlike = (one for one in apply_rules(evidence, "disagreements") if one.kind in _UNLIKE)
    sure = [*unlike, *apply_rules(evidence, "results", "state")]
    return [*sure, *(one for one in apply_rules(evidence, "values") if one.others)]
