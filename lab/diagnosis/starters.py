"""Launchers' own processes, the starters: one that failed though no rank did, and ranks that were never started."""

from __future__ import annotations

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Judgement
from lab.diagnosis.rank_facts import RankFacts
from lab.record.layout import LOGS, launcher_log
from lab.record.record_files import open_file
from lab.record.result import Culprit
from lab.words import clip, listing

_TAIL_BYTES = 16384
_LONGEST = 300


def judge_starters(evidence: Evidence) -> Judgement | None:
    """What starters did wrong in a run in which no rank failed; None where it was not them."""
    facts = evidence.facts
    failed = sorted((one for one in facts.starters if one.failed), key=lambda one: one.ended or 0.0)
    begun = any(rank.started is not None for rank in facts.ranks)
    if failed:
        first = failed[0]
        ended = f"was killed by {first.signal}" if first.signal else f"ended with code {first.code}"
        when = "though no rank had failed" if begun else "before any rank had started"
        error = f"the launcher on {first.node} {ended}, {when}{_last_words(evidence, first)}"
        return Judgement(verdict="failed", reason=error, culprit=Culprit(node=first.node, error=error))
    if facts.timed_out and facts.starters and not begun:
        nodes = listing(starter.node for starter in facts.starters)
        said = _last_words(evidence, facts.starters[0])
        reason = f"no end after {facts.time_given}: the launchers on {nodes} had not started any rank"
        return Judgement(verdict="hung", reason=reason + said)
    return None


def _last_words(evidence: Evidence, starter: RankFacts) -> str:
    """The last line that it printed, as the end of a sentence; empty where there is none."""
    try:
        with open_file(evidence.record.path, f"{LOGS}/{launcher_log(starter.node)}") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {clip(said, _LONGEST)}" if said else ""
