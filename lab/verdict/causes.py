"""What went wrong in a run that did not pass, the cause first: the verdict and every explanation rest on it."""

from __future__ import annotations

from lab.verdict.disagreement import disagreements, that_stop_a_run
from lab.verdict.evidence import Evidence
from lab.verdict.failure import explain_failure
from lab.verdict.finding import Finding
from lab.verdict.hang import explain_hang
from lab.verdict.outside import blows


def find_causes(evidence: Evidence, culprit: int | None = None, *, ended_well: bool = False) -> list[Finding]:
    """Why a run hung or failed; what ranks called differently is found in any run, one that ended well too.

    The culprit is the rank that the verdict names, if there is a verdict already.
    """
    ranks = evidence.facts.ranks
    if ended_well or not any(rank.failed or rank.node_lost or rank.alive for rank in ranks):
        return disagreements(evidence)
    stopping, other = that_stop_a_run(evidence)
    stopping = [*(blow.finding() for blow in blows(evidence.facts)), *stopping]
    if any(rank.failed or rank.node_lost for rank in ranks):
        return [*stopping, *explain_failure(evidence, culprit), *other]
    return [*stopping, *explain_hang(evidence, stopping), *other]
