"""What is wrong in a run though nothing fails."""

from __future__ import annotations

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.odd_values import find_odd_values
from lab.diagnosis.replicas import find_unlike_replicas
from lab.diagnosis.same_values import find_same_values
from lab.diagnosis.weights import find_weights_apart
from lab.diagnosis.wrongs import find_wrong_results


def find_silent_wrongs(evidence: Evidence) -> list[Finding]:
    """Replicas that differ, results that are not what they should be, and hints at what may be."""
    wrong = [*find_unlike_replicas(evidence), *find_weights_apart(evidence), *find_wrong_results(evidence)]
    return [*wrong, *find_odd_values(evidence), *find_same_values(evidence)]


def wrong_all_the_same(evidence: Evidence) -> str:
    """What is surely wrong in a run in which nothing failed, as a clause; empty where nothing is known to be."""
    found = [*find_wrong_results(evidence), *find_unlike_replicas(evidence), *find_weights_apart(evidence)]
    found += [one for one in find_odd_values(evidence) if one.others]
    return f"{found[0].headline}: see lab explain" if found else ""
