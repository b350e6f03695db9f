"""The verdict on a run, and one sentence that says so. Pure: facts in, judgement out."""

from __future__ import annotations

from dataclasses import replace

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Judgement
from lab.diagnosis.glance import worth_reading
from lab.diagnosis.limits import told_besides
from lab.record.layout import TRACE
from lab.words import format_duration


def judge(evidence: Evidence) -> Judgement:
    """Say how a run went and whose fault it was; the same at its end as from its record."""
    judgement = _judge(evidence)
    if judgement.culprit is not None:
        from lab.diagnosis.cause import with_cause  # where nothing failed nobody asks for it

        judgement = with_cause(judgement, evidence.facts)
    return replace(judgement, reason=judgement.reason + told_besides(evidence.facts))


def _not_begun_anew(facts: RunFacts) -> str:
    """That the time was up before launchers that went on after a failure had begun the workers anew; else empty."""
    if not (facts.timed_out and facts.starters) or any(starter.failed for starter in facts.starters):
        return ""
    return f"; the launcher had not begun anew when the time was up, after {facts.time_given}"


def _judge(evidence: Evidence) -> Judgement:
    facts = evidence.facts
    if facts.engine_lost or facts.refused:
        return Judgement(verdict="error", reason=facts.engine_lost or facts.refused)
    if facts.interrupted:
        return Judgement(verdict="error", reason=f"interrupted after {format_duration(facts.duration_s)}")
    if facts.restarted:
        from lab.diagnosis.attempts import judge_replaced

        replaced = judge_replaced(facts)
        if replaced is not None:
            return replaced
    # A run that passes needs none of what follows, and does not import it.
    if facts.lost_nodes or any(rank.failed for rank in (*facts.ranks, *facts.parents)):
        from lab.diagnosis.failure import judge_failure

        judgement = judge_failure(evidence)
        return replace(judgement, reason=judgement.reason + _not_begun_anew(facts))
    if facts.starters:
        from lab.diagnosis.starters import judge_starters

        of_starters = judge_starters(evidence)
        if of_starters is not None:
            return of_starters
    if facts.timed_out:
        from lab.diagnosis.hang import judge_hang

        return judge_hang(evidence)
    if all(rank.alive for rank in facts.ranks) and evidence.dumped:  # nobody saw how it ended
        from lab.diagnosis.dumps import judge_dumps

        return judge_dumps(evidence)
    who = f"all {len(facts.ranks)} ranks" if len(facts.ranks) > 1 else "1 rank"
    reason = f"{who} ended as expected in {format_duration(facts.duration_s)}"
    if any(rank.outlived and (rank.code or rank.signal) for rank in facts.ranks):
        from lab.diagnosis.started import tell_outlived

        reason = tell_outlived(evidence)
    if worth_reading(evidence.record.path / TRACE):
        from lab.diagnosis.silent import wrong_all_the_same

        wrong = wrong_all_the_same(evidence)
        reason += f", but {wrong}" if wrong else ""
    return Judgement(verdict="passed", reason=reason)
