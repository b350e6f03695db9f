"""The verdict on a run, and one sentence that says so. Pure: facts in, judgement out."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.reasons import describe_limits_and_orphans, passed_reason, replaced_reason
from lab.feature import hook
from lab.record.layout import LOGS, TRACE, launcher_log
from lab.record.record_files import list_folder, open_file, read_file
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
    return replace(judgement, reason=judgement.reason + describe_limits_and_orphans(evidence.facts))


def _judge(evidence: Evidence) -> Judgement:
    facts = evidence.facts
    if facts.engine_lost or facts.refused:
        return Judgement(verdict="error", reason=facts.engine_lost or facts.refused)
    if facts.interrupted:
        return Judgement(verdict="error", reason=f"interrupted after {format_duration(facts.duration_s)}")
    replaced = judge_replaced(facts)
    if replaced is not None:
        return replaced
    # A run that passes needs none of what follows, and does not import it.
    if facts.lost_nodes or any(rank.failed for rank in (*facts.ranks, *facts.parents)):
        from lab.diagnosis.failure import judge_failure

        judgement, late = judge_failure(evidence), ""
        if facts.timed_out and facts.starters and not any(starter.failed for starter in facts.starters):
            late = f"; the launcher had not begun anew when the time was up, after {facts.time_given}"
        return replace(judgement, reason=judgement.reason + late)
    of_starters = _judge_starters(evidence)
    if of_starters is not None:
        return of_starters
    if facts.timed_out:
        from lab.diagnosis.hang import judge_hang

        return judge_hang(evidence)
    if all(rank.alive for rank in facts.ranks) and evidence.dumped:  # nobody saw how it ended
        return _judge_dumps(evidence)
    reason = passed_reason(facts)
    if any(rank.outlived and (rank.code or rank.signal) for rank in facts.ranks):
        describe_outlived = hook("outlived_reason")
        reason = describe_outlived(evidence) if describe_outlived else reason
    if worth_reading(evidence.record.path / TRACE):
        from lab.diagnosis.causes import wrong_all_the_same

        wrong = wrong_all_the_same(evidence)
        if wrong:
            what = "; ".join(one.headline for one in wrong)
            return Judgement(verdict="passed", reason=f"{reason}, but {what}: see lab explain", findings=tuple(wrong))
    return Judgement(verdict="passed", reason=reason)


def _judge_starters(evidence: Evidence) -> Judgement | None:
    """What launchers' own processes did wrong in a run in which no rank failed; None where it was not them."""
    facts = evidence.facts
    failed = sorted((one for one in facts.starters if one.failed), key=lambda one: one.ended or 0.0)
    begun = any(rank.started is not None for rank in facts.ranks)
    if not facts.starters or (not failed and (not facts.timed_out or begun)):
        return None
    from lab.diagnosis.finding import FindingKind, LauncherEnded

    first = failed[0] if failed else facts.starters[0]
    nodes = (first.node,) if failed else tuple(starter.node for starter in facts.starters)
    ended = LauncherEnded(nodes=nodes, begun=begun, said=_last_words(evidence, first))
    if not failed:
        finding = ended.as_finding(FindingKind.LAUNCHER)
        reason = f"no end after {facts.time_given}: {finding.headline}"
        return Judgement(verdict="hung", reason=reason, findings=(finding,))
    ended = replace(ended, failed=True, signal=first.signal or "", code=first.code)
    finding = ended.as_finding(FindingKind.LAUNCHER)
    culprit, headline = Culprit(node=first.node, error=finding.headline), finding.headline
    return Judgement(verdict="failed", reason=headline, culprit=culprit, findings=(finding,), summary=headline)


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
    from lab.diagnosis.ends import blame, find_waits

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


# -- an attempt whose launcher began the workers anew


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
    return Judgement(verdict="error", reason=replaced_reason(facts))


# -- whether the traces of a run in which nothing failed are worth reading, which takes longer than a short run
#
# Nearly all that can be wrong in silence leaves one of five signs in the bytes of its traces: handles of the script's
# own, operations that fill several tensors, NaN, numbers too large to be written without an exponent, replicas that are
# said to be different.

_MOST_BYTES = 1 << 20
_HANDLES = rb'"async":true(?![^\n]*"via":"(?:DistributedDataParallel|backward))'
_SEVERAL_TENSORS = rb'"op":"(?:all_gather|gather|all_to_all)"'
_SIGNS = re.compile(b"|".join((_HANDLES, _SEVERAL_TENSORS, rb'"nan"', rb"\de\+\d")))
_REPLICAS = re.compile(rb'"d":(\d+),(?:[^\n]*?"params":(\[.*?\]),"buckets"|"steps":(\d+),"norms":(\[.*?\]))')
_WEIGHTS = re.compile(rb'"o":(\d+),"steps":(\d+),[^\n]*?"grads":(\[.*?\]),"norms":(\[.*?\])')


def worth_reading(folder: Path) -> bool:
    """Whether the traces in a folder, if they are not too long for a verdict to wait, show a sign of anything wrong."""
    sizes = list_folder(folder.parent, folder.name)
    if sum(sizes.values()) > _MOST_BYTES:
        return False
    known: dict[tuple[bytes, ...], bytes] = {}
    traces = list[bytes]()
    for name in sizes:
        with suppress(OSError):
            traces.append(read_file(folder.parent, f"{folder.name}/{name}", _MOST_BYTES))
    if any(map(_SIGNS.search, traces)):
        return True
    for trace in traces:
        same = [((number, steps), parameters or norms) for number, parameters, steps, norms in _REPLICAS.findall(trace)]
        same += [((*step, b""), norms) for *step, norms in _WEIGHTS.findall(trace)]
        for what, values in same:  # of a module or a step, what all ranks should have
            if known.setdefault(what, values) != values:
                return True
    return False
