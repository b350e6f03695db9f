"""The attempts of a run whose launcher began the workers anew: what ended each, and what that makes of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.diagnosis import wording
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import AttemptEnded, Finding, FindingKind
from lab.diagnosis.judgement import Judgement
from lab.record.read import Record
from lab.record.result import Attempt

_MOST = 20
"""Earlier attempts of which an explanation tells."""


def with_story(last: Judgement, attempts: Sequence[Attempt], used_up: int = 0) -> Judgement:
    """The judgement on the last of several attempts, with what ended those before it.

    Args:
        last: the judgement.
        attempts: all of them, the last one too.
        used_up: how many restarts were allowed, where there could be no further attempt, see `restarts_used_up`.
    """
    return replace(last, reason=wording.story_of_attempts(last, attempts, used_up))


def judge_replaced(facts: RunFacts) -> Judgement | None:
    """That the launcher ended an attempt, and none of its ranks; None where one did, or where a node was lost.

    Where a node came, agents of the launcher end their workers one after the other, and some lose their peers.
    """
    failed = [rank for rank in facts.ranks if rank.failed]
    if facts.lost_nodes or not facts.restarted:
        return None
    if failed:
        from lab.diagnosis.errors import lost_a_peer

        if not (facts.came and all(map(lost_a_peer, failed))) or any(rank.left for rank in facts.ranks):
            return None
    reason = wording.replaced_reason(facts.duration_s, facts.came)
    return Judgement(verdict="error", reason=reason)


def restarts_used_up(facts: RunFacts, allowed: int) -> int:
    """How many restarts a launcher had, if it could not begin anew once more; 0 where it could, or is not known to.

    Each node counts for itself, and only attempts in which one of its own ranks had failed.
    """
    failures: dict[str, int] = {}
    for attempt in (*facts.earlier, facts):
        for node in {rank.node for rank in attempt.ranks if rank.failed}:
            failures[node] = failures.get(node, 0) + 1
    gave_up = not facts.starters or any(starter.failed for starter in facts.starters)
    return allowed if gave_up and max(failures.values(), default=0) > allowed else 0


def tell_attempts(record: Record) -> list[Finding]:
    """What ended each attempt before the one that a record shows, in order, of many the last.

    Of a record that ends before its result as well.
    """
    return [_told(number, earlier) for number, earlier in [*record.earlier_attempts().items()][-_MOST:]]


def _told(number: int, record: Record) -> Finding:
    result = record.result()
    reason, culprit, duration_s = result.reason, result.culprit, result.duration_s
    if not record.complete:
        from lab.diagnosis.judge import judge

        evidence = read_evidence(record)
        judged = judge(evidence)
        reason, culprit, duration_s = judged.reason, judged.culprit, evidence.facts.duration_s or None
    facts = AttemptEnded(
        number=number,
        world_size=len(record.workers()),
        reason=reason,
        ranks=() if culprit is None or culprit.rank is None else (culprit.rank,),
        seconds=duration_s,
    )
    return Finding(kind=FindingKind.ATTEMPT, facts=facts)
