"""The verdict on a run, and one sentence that says so. Pure: facts in, judgement out."""

from __future__ import annotations

from dataclasses import replace

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.glance import worth_reading
from lab.diagnosis.judgement import Judgement
from lab.diagnosis.limits import told_besides
from lab.record.layout import LOGS, TRACE, launcher_log
from lab.record.record_files import open_file
from lab.record.result import Culprit
from lab.words import format_duration, name_ranks

_TAIL_BYTES = 16384
"""Of a launcher's log, so much is read for its last line."""


def judge(evidence: Evidence) -> Judgement:
    """Say how a run went and whose fault it was; the same at its end as from its record."""
    judgement = _judge(evidence)
    if judgement.culprit is not None:
        from lab.diagnosis.errors import with_cause  # where nothing failed nobody asks for it

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
        of_starters = _judge_starters(evidence)
        if of_starters is not None:
            return of_starters
    if facts.timed_out:
        from lab.diagnosis.hang import judge_hang

        return judge_hang(evidence)
    if all(rank.alive for rank in facts.ranks) and evidence.dumped:  # nobody saw how it ended
        return _judge_dumps(evidence)
    who = f"all {len(facts.ranks)} ranks" if len(facts.ranks) > 1 else "1 rank"
    reason = f"{who} ended as expected in {format_duration(facts.duration_s)}"
    if any(rank.outlived and (rank.code or rank.signal) for rank in facts.ranks):
        from lab.diagnosis.started import tell_outlived

        reason = tell_outlived(evidence)
    if worth_reading(evidence.record.path / TRACE):
        from lab.diagnosis.causes import wrong_all_the_same

        wrong = wrong_all_the_same(evidence)
        if wrong:
            told = "; ".join(one.headline for one in wrong)
            return Judgement(verdict="passed", reason=f"{reason}, but {told}: see lab explain", findings=tuple(wrong))
    return Judgement(verdict="passed", reason=reason)


def _judge_starters(evidence: Evidence) -> Judgement | None:
    """What launchers' own processes did wrong in a run in which no rank failed; None where it was not them."""
    facts = evidence.facts
    failed = sorted((one for one in facts.starters if one.failed), key=lambda one: one.ended or 0.0)
    begun = any(rank.started is not None for rank in facts.ranks)
    if not failed and (not facts.timed_out or begun):
        return None
    from lab.diagnosis.finding import Finding, FindingKind, LauncherEnded

    first = failed[0] if failed else facts.starters[0]
    nodes = (first.node,) if failed else tuple(starter.node for starter in facts.starters)
    told = LauncherEnded(nodes=nodes, begun=begun, said=_last_words(evidence, first))
    if not failed:
        finding = Finding(kind=FindingKind.LAUNCHER, facts=told)
        reason = f"no end after {facts.time_given}: {finding.headline}"
        return Judgement(verdict="hung", reason=reason, findings=(finding,))
    finding = Finding(
        kind=FindingKind.LAUNCHER, facts=replace(told, failed=True, signal=first.signal or "", code=first.code)
    )
    culprit = Culprit(node=first.node, error=finding.headline)
    return Judgement(
        verdict="failed", reason=finding.headline, culprit=culprit, findings=(finding,), summary=finding.headline
    )


def _last_words(evidence: Evidence, starter: RankFacts) -> str:
    """The last line that a launcher printed; empty where there is none."""
    try:
        with open_file(evidence.record.path, f"{LOGS}/{launcher_log(starter.node)}") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _judge_dumps(evidence: Evidence) -> Judgement:
    """Say what ranks waited for when they were dumped, in a job that nobody saw; how it ended is in no dump."""
    from lab.diagnosis.causes import find_causes
    from lab.diagnosis.ends import blame
    from lab.diagnosis.waits import find_waits

    causes = find_causes(evidence)
    if not any(call.state == "unfinished" for rank in evidence.ranks for call in evidence.calls(rank)):
        reason = "every call in the dumps is over: they do not tell what kept the job from going on, if anything did"
        return Judgement(verdict="error", reason=reason)
    first = next((cause for cause in causes if cause.step), None)
    waiting = name_ranks(find_waits(evidence))
    if first is None:
        return Judgement(verdict="hung", reason=f"{waiting} had calls under way when dumped")
    named = next((rank for rank in first.ranks if rank in evidence.ranks), None)
    culprit = None if named is None else blame(evidence.ranks[named], first.headline, cause=first.kind.value)
    reason = f"when dumped, {waiting} had calls under way: {first.headline}"
    return Judgement(verdict="hung", reason=reason, culprit=culprit, findings=(first,), summary=first.headline)
