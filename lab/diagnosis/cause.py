"""What sort of thing the culprit of a verdict met or did, in a word: by what its node, its process and its error show.

The words are listed in `docs/explain.md`; whoever counts failures counts by them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from lab.diagnosis.errors import gave_up, lost_a_peer
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judgement import Judgement
from lab.record.result import Culprit

_BY_ERROR = {
    "loader_killed": r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal|exited unexpectedly)",
    "disk_full": r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded",
    "out_of_memory": r"^(?:MemoryError|numpy\.\S*MemoryError|torch\.OutOfMemoryError|torch\.cuda\.OutOfMemoryError)\b"
    r"|can't allocate memory|Cannot allocate memory|\[Errno 12\]",
    "name_resolution": r"gaierror|Name or service not known|Temporary failure in name resolution"
    r"|No address associated with hostname|getaddrinfo failed|(?:can not|cannot) resolve",
    "not_a_number": r"\bnan\b|not a number|(?:not|non-?)\s?finite|\binf(?:inity|inite)?\b",
}
"""What the text of an error tells, the most telling first."""
_OF_ERRORS = {cause: re.compile(pattern, re.IGNORECASE) for cause, pattern in _BY_ERROR.items()}


def with_cause(judgement: Judgement, facts: RunFacts) -> Judgement:
    """The judgement with the cause of its culprit, where that was not said already."""
    culprit = judgement.culprit
    if culprit is None or culprit.cause:
        return judgement
    cause = _cause_of(culprit, facts, hung=judgement.verdict == "hung")
    return replace(judgement, culprit=replace(culprit, cause=cause))


def _cause_of(culprit: Culprit, facts: RunFacts, *, hung: bool) -> str:
    rank = next((rank for rank in facts.ranks if rank.rank == culprit.rank), None)
    if rank is None:
        return ""
    if rank.failed:
        return _cause_of_end(rank)
    if rank.left:
        return "left_early"
    return "never_came" if hung else "late"


def _cause_of_end(rank: RankFacts) -> str:
    if rank.out_of_memory:
        return "out_of_memory"
    if rank.signal and rank.raised is None:
        return "killed"
    told = error_cause(rank.error)
    if told:
        return told
    if lost_a_peer(rank):
        return "time_out" if gave_up(rank) else "connection_lost"
    return "exception" if rank.error and not rank.error.startswith("SystemExit") else "exit"


def error_cause(error: str) -> str:
    """What the text of an error tells of its cause; empty where it tells nothing."""
    return next((cause for cause, pattern in _OF_ERRORS.items() if pattern.search(error)), "")
