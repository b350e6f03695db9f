"""What went wrong in a run, the cause first: the verdict and every explanation rest on it."""

from __future__ import annotations

from lab.diagnosis.counts import count_phases
from lab.diagnosis.disagreement import disagreements, that_stop_a_run
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.failure import explain_failure
from lab.diagnosis.finding import Finding, FindingKind
from lab.diagnosis.hang import explain_hang
from lab.diagnosis.links import blows
from lab.diagnosis.replicas import find_unlike_replicas, find_weights_apart
from lab.diagnosis.values import find_odd_values, find_same_values, find_wrong_results


def find_causes(evidence: Evidence, culprit: int | None = None, *, ended_well: bool = False) -> list[Finding]:
    """Why a run hung or failed; what ranks called differently is found in any run, one that ended well too.

    The culprit is the rank that the verdict names, if there is a verdict already.
    """
    ranks = evidence.facts.ranks
    if ended_well or not any(rank.failed or rank.node_lost or rank.alive for rank in ranks):
        return [*disagreements(evidence), *find_silent_wrongs(evidence)]
    stopping, other = that_stop_a_run(evidence)
    stopping = [*blows(evidence.facts), *stopping]
    silent, counts = find_silent_wrongs(evidence), count_phases(evidence)
    refused = [finding for finding in silent if finding.kind is FindingKind.SHAPE]
    failed = any(rank.failed or rank.node_lost for rank in ranks)
    ends = explain_failure(evidence, culprit) if failed else explain_hang(evidence, stopping)
    why = [finding for finding in counts if ends and _explains(finding, ends[0])]
    found = [*refused, *stopping, *why, *ends, *counts, *other, *silent]
    return [finding for n, finding in enumerate(found) if finding not in found[:n]]


def _explains(count: Finding, end: Finding) -> bool:
    """Whether what a rank did more or less often is why it was not there, and so comes first."""
    return end.kind.is_absence and bool(set(count.ranks) & set(end.ranks))


def find_silent_wrongs(evidence: Evidence) -> list[Finding]:
    """What is wrong though nothing fails: replicas that differ, wrong results, and hints at what may be."""
    wrong = [*find_unlike_replicas(evidence), *find_weights_apart(evidence), *find_wrong_results(evidence)]
    return [*wrong, *find_odd_values(evidence), *find_same_values(evidence)]


def wrong_all_the_same(evidence: Evidence) -> list[Finding]:
    """What is surely wrong in a run in which nothing failed."""
    found = [*find_wrong_results(evidence), *find_unlike_replicas(evidence), *find_weights_apart(evidence)]
    return [*found, *(one for one in find_odd_values(evidence) if one.others)]
