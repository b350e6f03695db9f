"""A job that nobody saw, of which there are dumps alone: what kept it from going on, as far as they tell."""

from __future__ import annotations

from lab.diagnosis.causes import find_causes
from lab.diagnosis.ends import blame
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Judgement
from lab.diagnosis.waits import find_waits
from lab.words import name_ranks


def judge_dumps(evidence: Evidence) -> Judgement:
    """Say what ranks waited for when they were dumped; how a job ended is in no dump."""
    causes = find_causes(evidence)
    if not any(call.state == "unfinished" for rank in evidence.ranks for call in evidence.calls(rank)):
        reason = "every call in the dumps is over: they do not tell what kept the job from going on, if anything did"
        return Judgement(verdict="error", reason=reason)
    first = next((cause for cause in causes if cause.step), None)
    waiting = name_ranks(find_waits(evidence))
    if first is None:
        return Judgement(verdict="hung", reason=f"{waiting} had calls under way when dumped")
    named = next((rank for rank in first.ranks if rank in evidence.ranks), None)
    culprit = None if named is None else blame(evidence.ranks[named], first.headline, cause=first.kind)
    return Judgement(
        verdict="hung", reason=f"when dumped, {waiting} had calls under way: {first.headline}", culprit=culprit
    )
