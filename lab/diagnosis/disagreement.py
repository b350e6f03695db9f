"""What ranks did differently, as features find it: what of it can stop a run, and what came before a failure."""

from __future__ import annotations

from lab.diagnosis.evidence import Evidence, apply_rules
from lab.diagnosis.finding import Finding, FindingKind


def that_stop_a_run(evidence: Evidence) -> tuple[list[Finding], list[Finding]]:
    """What ranks did differently that can keep a run from going on, faults of groups first; and all other."""
    stopping, other = list[Finding](), list[Finding]()
    for one in apply_rules(evidence, "disagreements"):
        stops = one.kind in (FindingKind.MISMATCH, FindingKind.SLIPPED) or one.step in evidence.unended
        (stopping if stops else other).append(one)
    return [*apply_rules(evidence, "groups"), *stopping], other


def differed_before(evidence: Evidence, rank: int) -> Finding | None:
    """What ranks called differently in a step that a rank came out of before it failed."""
    steps = {step.title for step in evidence.steps if rank in step.calls} if evidence.at_hand else ()
    return next((one for one in that_stop_a_run(evidence)[1] if one.step in steps), None) if steps else None
