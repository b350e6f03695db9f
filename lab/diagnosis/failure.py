"""A run that failed: whose fault it was, and what that did to the other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from lab.diagnosis import wording
from lab.diagnosis.disagreement import differed_before, that_stop_a_run
from lab.diagnosis.ends import blame, calls_at, common_progress, end_of, stood_of
from lab.diagnosis.errors import (
    error_cause,
    failed_in_torch,
    find_odd_one,
    gave_up,
    gave_way,
    lost_a_peer,
    way_to_module,
)
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import SEEN_LATER_S, RankFacts, RunFacts
from lab.diagnosis.finding import End, Finding, FindingKind, FirstFailure, Hit, Missed, OddCall, WentAlone, WorkerFailed
from lab.diagnosis.hang import explain_stand_off
from lab.diagnosis.judgement import Judgement
from lab.diagnosis.links import blows, culprit_of, find_broken_link
from lab.diagnosis.messages import left_by
from lab.diagnosis.rendezvous import explain_rendezvous
from lab.diagnosis.replicas import find_unlike_replicas, find_weights_apart
from lab.diagnosis.values import find_odd_values
from lab.plan.plan import HOST
from lab.record.events import NodeLost
from lab.record.result import Culprit
from lab.trace.model import Call
from lab.trace.steps import Step

_LEAST_ALIKE = 2
"""So many ranks that raise the same have met the same."""


def judge_failure(evidence: Evidence) -> Judgement:
    """Say whose fault it was.

    The first culprit is the earliest rank or node whose failure was its own. A rank that lost its peer is secondary;
    if only such ranks failed, the culprit is the rank that left the others without failing itself, because it exited
    or because it went on without them.
    """
    facts = evidence.facts
    failed = sorted((rank for rank in facts.ranks if rank.failed), key=failed_at)
    own = [rank for rank in failed if not lost_a_peer(rank)]
    lost = min(facts.lost_nodes, key=lambda node: node.time, default=None)
    if lost is not None and (not own or lost.time <= failed_at(own[0])):
        return _blame_node(facts, lost)
    outside = blows(facts)
    if outside and all(map(gave_way, own)):
        reason = "; ".join(blow.headline for blow in outside)
        return Judgement(verdict="failed", reason=reason, culprit=culprit_of(outside[0]), findings=tuple(outside))
    starter = min((one for one in facts.parents if one.failed), key=failed_at, default=None)
    if starter is not None and (not failed or failed_at(starter) < failed_at(failed[0])):
        return _blame_starter(evidence, starter)
    victim = failed[0]
    odd = find_odd_one(failed)
    if odd is not None:
        place = evidence.raised(facts.rank(odd.rank))
        told = OddCall(call=odd.call, common=odd.others, ranks=(odd.rank,), lines=(place.at,) if place else ())
        return _blame(
            facts.rank(odd.rank), Finding(kind=FindingKind.MISMATCH, facts=told), wording.render_odd_call(told)
        )
    unlike = _unlike(evidence) if own and all(map(failed_in_torch, own)) else None
    if unlike is not None:
        return _judged_by(unlike, evidence, victim)
    found = _odd_call(evidence) if all(map(failed_in_torch, own)) else None
    if found is not None:
        return _blame_odd_call(evidence, found, victim)
    if own:
        deeper = _misfit(evidence, own[0]) or _apart(evidence, own) or _given(evidence, own[0])
        if deeper is not None:
            return _judged_by(deeper, evidence, own[0], brief=True)
        return _blame_own(evidence, own)
    broken = find_broken_link(evidence)
    meeting = explain_rendezvous(evidence) if evidence.at_hand and not (broken and broken.link) else None
    if meeting is not None:
        return _judged_by(meeting, evidence, victim)
    stuck = explain_stand_off(evidence) if evidence.at_hand else []
    if stuck:
        return _judged_by(stuck[0], evidence, victim)
    gone = [rank.rank for rank in facts.ranks if rank.code == 0 and not rank.stopped]
    if len(gone) > len(facts.ranks) - len(gone) and left_by(evidence, victim.rank) is None:
        alone = WentAlone(place=evidence.raised(victim), node=victim.node, ranks=(victim.rank,), others=tuple(gone))
        finding = Finding(kind=FindingKind.WENT_ALONE, facts=alone)
        then = wording.failed_alone(end_of(evidence, victim))
        return _blame(victim, finding, wording.render_went_alone(alone), then, cause="went_alone")
    if broken is not None:
        return _judged_by(broken, evidence, victim, brief=True)
    victim = next((rank for rank in failed if gave_up(rank)), victim)
    missed, end = missed_by(evidence, victim), end_of(evidence, victim)
    if missed is None:
        return _blame(victim, _failed(victim, end), wording.render_end(end))
    return _blame_missed(evidence, missed, victim, end)


def _blame_node(facts: RunFacts, lost: NodeLost) -> Judgement:
    finding = _lost_together(facts, lost)
    told = finding.facts
    assert isinstance(told, FirstFailure)
    what = wording.name_lost(told)
    first = next((rank.rank for rank in facts.ranks if rank.node == lost.node), None)
    culprit = Culprit(rank=first, node=lost.node, error=what, cause="node_lost")
    reason = wording.node_reason(told, launcher=bool(facts.starters) and lost.node == HOST)
    summary = wording.name_lost(told, when="")
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(finding,), summary=summary)


def _lost_together(facts: RunFacts, lost: NodeLost) -> Finding:
    """How a node was lost, and those that were lost with it; and the ranks there."""
    together = (one for one in facts.lost_nodes if one.how == lost.how and abs(one.time - lost.time) <= SEEN_LATER_S)
    nodes = {lost.node, *(one.node for one in together)}
    ranks = tuple(rank.rank for rank in facts.ranks if rank.node in nodes)
    told = FirstFailure(what="nodes_lost", node=lost.node, nodes=tuple(sorted(nodes)), how=lost.how, ranks=ranks)
    return Finding(kind=FindingKind.FAILED, facts=told)


def _blame_starter(evidence: Evidence, starter: RankFacts) -> Judgement:
    """A worker that failed by itself after its script had started the ranks: it is none of them."""
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.parent == starter.rank)
    end = end_of(evidence, starter)
    facts = WorkerFailed(worker=starter.rank, node=starter.node, end=end, started=ranks, others=ranks)
    finding = Finding(kind=FindingKind.FAILED, facts=facts)
    culprit = replace(blame(starter, wording.render_end(end)), rank=None)
    return Judgement(verdict="failed", reason=finding.headline, culprit=culprit, findings=(finding,))


def _blame_odd_call(evidence: Evidence, found: Finding, victim: RankFacts) -> Judgement:
    """The rank that called something else than most others, by a step that never ended because of that."""
    odd = evidence.facts.rank(found.ranks[0])
    end = end_of(evidence, victim) if victim is not odd else None
    reason = wording.odd_call_reason(found, odd.rank, odd.node, victim.rank, end)
    culprit = blame(odd, found.headline, cause=found.kind.value)
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(found,), summary=found.headline)


def _blame_own(evidence: Evidence, own: Sequence[RankFacts]) -> Judgement:
    """The first rank that failed by itself, and those that did so for another reason."""
    first, end = own[0], end_of(evidence, own[0])
    then = way_to_module(evidence.facts, first) or _to_nobody(evidence, first)
    before = None if then else differed_before(evidence, first.rank)
    then = then or (wording.before_that(before) if before is not None else "")
    judgement = _blame(first, _failed(first, end), wording.render_end(end), then)
    others = _independent(evidence, own)
    if not others:
        return judgement
    findings = [_failed(rank, end_of(evidence, rank, brief=True)) for rank in others]
    reason = "; ".join([judgement.reason, *(wording.further_cause(one) for one in findings)])
    return replace(judgement, reason=reason, findings=(*judgement.findings, *findings))


def _independent(evidence: Evidence, own: Sequence[RankFacts]) -> list[RankFacts]:
    """Ranks whose failures have nothing to do with that of the first: they raised something else, elsewhere, by then.

    A rank that had failed in torch.distributed, given up, or ended later than the first one's end can be felt, may
    have failed because of it.
    """
    first, found = own[0], list[RankFacts]()
    known = {_raised_as(evidence, first)}
    for rank in own[1:]:
        raised = _raised_as(evidence, rank)
        by_itself = not (failed_in_torch(rank) or failed_in_torch(first) or gave_way(rank) or rank.out_of_memory)
        at_once = rank.raised is not None and first.ended is not None and rank.raised <= first.ended
        if raised is not None and raised not in known and by_itself and at_once:
            known.add(raised)
            found.append(rank)
    return found


def _blame_missed(evidence: Evidence, missed: Missed, victim: RankFacts, end: End) -> Judgement:
    rank = evidence.facts.rank(missed.rank)
    kind = FindingKind.LEFT_EARLY if missed.how in ("exited", "left") else FindingKind.LATE
    what: Literal["late", "left"] = "late" if kind is FindingKind.LATE else "left"
    facts = FirstFailure(what=what, node=rank.node, missed=missed, ranks=(missed.rank,), others=(victim.rank,))
    then = f": {wording.then_failed(victim.rank, end)}"
    finding = Finding(kind=kind, facts=facts)
    return _blame(rank, finding, wording.render_missed(missed), then, victim.traceback, kind.value)


def _failed(rank: RankFacts, end: End) -> Finding:
    facts = FirstFailure(what="failed", node=rank.node, end=end, place=end.place, ranks=(rank.rank,))
    return Finding(kind=FindingKind.FAILED, facts=facts)


def _blame(
    rank: RankFacts, finding: Finding, did: str, then: str = "", traceback: str = "", cause: str = ""
) -> Judgement:
    """A rank as the culprit, with what it did in words that follow its name."""
    cause = cause or ("" if finding.kind is FindingKind.FAILED else finding.kind.value)
    return Judgement(
        verdict="failed",
        reason=f"{wording.full_name(rank.rank, rank.node)} {did}{then}",
        culprit=blame(rank, did, traceback, cause),
        findings=(finding,),
        summary=f"rank {rank.rank} {did}",
    )


def _judged_by(found: Finding, evidence: Evidence, victim: RankFacts, *, brief: bool = False) -> Judgement:
    """What a finding says, and its first rank as the culprit, if it names one."""
    named = evidence.facts.rank(found.ranks[0]) if found.ranks else None
    headline = found.headline
    culprit = blame(named, headline, cause=found.kind.value) if named is not None else None
    if found.link:
        culprit = Culprit(link=found.link, error=headline, cause=found.kind.value)
    reason = f"{headline}; {wording.then_failed(victim.rank, end_of(evidence, victim, brief=brief))}"
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(found,), summary=headline)


def failed_at(rank: RankFacts) -> float:
    """When it failed: when it raised, or else when it ended."""
    return rank.raised or rank.ended or float("inf")


def _unlike(evidence: Evidence) -> Finding | None:
    """Replicas of a DDP module that are not alike: it refuses those."""
    found = find_unlike_replicas(evidence) if evidence.at_hand else []
    return next((finding for finding in found if finding.kind is FindingKind.SHAPE), None)


def _odd_call(evidence: Evidence) -> Finding | None:
    """A step that never ended because one rank called it differently from most others."""
    if not evidence.at_hand:
        return None
    unended = {step.title for step in evidence.steps if step.state != "completed"}
    stopping, _ = that_stop_a_run(evidence)
    return next(
        (
            found
            for found in stopping
            if found.ranks and (found.kind in (FindingKind.GROUPS, FindingKind.RENDEZVOUS) or found.step in unended)
        ),
        None,
    )


def _misfit(evidence: Evidence, first: RankFacts) -> Finding | None:
    """That what ranks brought does not fit, in the message or collective that torch.distributed failed in."""
    hit = evidence.broken(first.rank) if failed_in_torch(first) and evidence.at_hand else None
    found = that_stop_a_run(evidence)[0] if hit is not None else []
    return next((one for one in found if hit and one.step == hit[1].title and one.kind.is_misfit), None)


def _to_nobody(evidence: Evidence, first: RankFacts) -> str:
    """That a rank failed in a message to or from one that there is not, as a clause; empty where it did not."""
    hit = evidence.broken(first.rank) if evidence.at_hand else None
    peer = hit[0].peer if hit is not None else None
    return "" if peer is None or peer in evidence.ranks else wording.no_such_rank(peer)


def _apart(evidence: Evidence, own: Sequence[RankFacts]) -> Finding | None:
    """Whose weights are others than most ranks', where several raised alike at one line: they had compared them."""
    first = _raised_as(evidence, own[0]) if evidence.at_hand else None
    alike = [rank for rank in own if first is not None and _raised_as(evidence, rank) == first]
    if len(alike) < _LEAST_ALIKE:
        return None
    return next((one for one in (*find_unlike_replicas(evidence), *find_weights_apart(evidence)) if one.ranks), None)


def _raised_as(evidence: Evidence, rank: RankFacts) -> tuple[str, str] | None:
    """What a rank raised, and at which line; None where that is not known."""
    place = evidence.raised(rank)
    return None if place is None else (rank.error.partition(":")[0], place.at)


def _given(evidence: Evidence, first: RankFacts) -> Finding | None:
    """Who had brought NaN, or a value far from the others', where that is what the first rank to fail complains of."""
    if error_cause(first.error) != "not_a_number" or not evidence.at_hand:
        return None
    return next((one for one in find_odd_values(evidence) if one.ranks and one.others), None)


def missed_by(evidence: Evidence, victim: RankFacts) -> Missed | None:
    """The rank that was gone when another got into trouble, or came too late, or had nothing to do with it."""
    ranks = evidence.facts.ranks
    before = failed_at(victim) + SEEN_LATER_S
    hit = evidence.broken(victim.rank) if evidence.at_hand else None
    gone = [rank for rank in ranks if rank.left and rank.ended is not None and rank.ended <= before]
    other_end = left_by(evidence, victim.rank)
    needed = [one for one in gone if hit is not None and (one.rank in hit[1].missing or one.rank == other_end)]
    late = _late(evidence, victim, *hit) if hit is not None and gave_up(victim) and not needed else None
    if late is not None:
        return late
    if gone:
        first = min(needed or gone, key=lambda rank: rank.ended or 0.0)
        lived = (first.ended or 0.0) - (first.started or first.ended or 0.0)
        return Missed(
            rank=first.rank, node=first.node, how="exited", victim=victim.rank, code=first.code, seconds=lived
        )
    elsewhere = [rank for rank in ranks if rank.stack and not ((at := evidence.stood(rank)) and at.call)]
    for rank in elsewhere[:1]:
        how: Literal["was_late", "left"] = "was_late" if gave_up(victim) else "left"
        stood = stood_of(evidence, rank)
        return Missed(rank=rank.rank, node=rank.node, how=how, victim=victim.rank, stood=stood)
    return None


def _late(evidence: Evidence, victim: RankFacts, call: Call, step: Step) -> Missed | None:
    """The last of those to come for whom a rank had waited until it gave up; None where everybody came in time."""
    came = {rank: step.calls[rank].begin for rank in step.needs(call) if rank in step.calls}
    never = [rank for rank in step.needs(call) if rank not in came and rank in evidence.ranks]
    alive = [rank for rank in never if evidence.ranks[rank].alive]
    if alive:
        rank = evidence.ranks[alive[0]]
        stood = stood_of(evidence, rank) if rank.stack else None
        return Missed(
            rank=rank.rank, node=rank.node, how="never_came", victim=victim.rank, step=step.title, stood=stood
        )
    last = max(came, key=lambda rank: came[rank], default=None)
    if never or last is None or call.end is None or came[last] <= call.end + step.apart_s:
        return None
    rank = evidence.ranks[last]
    return Missed(
        rank=rank.rank,
        node=rank.node,
        how="came_late",
        victim=victim.rank,
        seconds=came[last] - call.end,
        step=step.title,
        source=step.calls[last].source,
    )


# -- what a failure did to the other ranks


def explain_failure(evidence: Evidence, culprit: int | None) -> list[Finding]:
    """Who failed first, the culprit if one is known already, and in which calls that found the others."""
    stuck = explain_stand_off(evidence)
    if stuck and (culprit is None or culprit in stuck[0].ranks):
        return stuck
    link = find_broken_link(evidence)
    if link is not None and (culprit is None or culprit in link.ranks):
        return [link]
    if culprit is None:
        judged = judge_failure(evidence).culprit
        culprit = judged.rank if judged is not None else None
    first = evidence.ranks.get(culprit) if culprit is not None else None
    if first is None:
        return []
    meeting = explain_rendezvous(evidence) if lost_a_peer(first) else None
    if meeting is not None:
        return [meeting]
    alone = _went_alone(evidence, first)
    if alone is not None:
        return [alone]
    return _explain_first(evidence, first)


def _explain_first(evidence: Evidence, first: RankFacts) -> list[Finding]:
    """How the first to fail did so, and the steps in which that found the others."""
    place, missed = evidence.place(first), _missed_by_first(evidence)
    lost = next((one for one in evidence.facts.lost_nodes if one.node == first.node), None)
    facts, kind = FirstFailure(what="left", node=first.node, ranks=(first.rank,)), FindingKind.LEFT_EARLY
    if first.node_lost:
        together = _lost_together(evidence.facts, lost).facts if lost is not None else None
        facts, kind = replace(facts, what="node_lost"), FindingKind.FAILED
        facts = together if isinstance(together, FirstFailure) else facts
    elif missed is not None and missed.rank == first.rank and missed.how not in ("exited", "left"):
        facts, kind = replace(facts, what="late", missed=missed), FindingKind.LATE
    elif first.left:
        facts = replace(facts, code=first.code)
    elif first.failed:
        facts, kind = replace(facts, what="failed", end=end_of(evidence, first, brief=True)), FindingKind.FAILED
    elif place is not None:
        facts = replace(facts, what="strayed", place=place)
    else:
        return []
    hits = _hits(evidence, facts.ranks)
    found = [call for _, calls in hits for call in calls]
    facts = replace(
        facts,
        progress=common_progress(evidence, facts.ranks),
        hits=tuple(_hit(step, calls) for step, calls in hits),
        others=tuple(sorted(call.rank for call in found)),
        step=hits[0][0].title if hits else "",
        lines=(place.at if place else evidence.last_line(first.rank), *(call.source for call in found)),
    )
    return [Finding(kind=kind, facts=facts)]


def _missed_by_first(evidence: Evidence) -> Missed | None:
    """Whom the rank missed that failed first, if it failed for want of a peer."""
    failed = sorted((rank for rank in evidence.facts.ranks if rank.failed and lost_a_peer(rank)), key=failed_at)
    victim = next((rank for rank in failed if gave_up(rank)), failed[0] if failed else None)
    return missed_by(evidence, victim) if victim is not None else None


def _hits(evidence: Evidence, ended: Sequence[int]) -> list[tuple[Step, list[Call]]]:
    """The steps in which the end of some ranks found others, and their calls."""
    found: dict[int, tuple[Step, list[Call]]] = {}
    for rank in evidence.facts.ranks:
        hit = evidence.broken(rank.rank) if rank.rank not in ended and not rank.left else None
        if hit is not None:
            found.setdefault(hit[1].number, (hit[1], []))[1].append(hit[0])
    return sorted(found.values(), key=lambda item: -len(item[1]))


def _hit(step: Step, calls: Sequence[Call]) -> Hit:
    name = step.title if not step.message else f"{calls[0].op} ({step.title})"
    return Hit(name=name, calls=calls_at(calls))


def _went_alone(evidence: Evidence, first: RankFacts) -> Finding | None:
    """That a rank failed in a call because all whom it needed there had ended with code 0."""
    hit = evidence.broken(first.rank) if first.failed else None
    if hit is None:
        return None
    (call, step), ranks = hit, evidence.ranks
    gone = step.missing
    if len(gone) <= len(step.calls) or not all(rank in ranks and ranks[rank].left for rank in gone):
        return None
    facts = WentAlone(
        node=first.node,
        call=calls_at([call])[0],
        message=step.message,
        progress=common_progress(evidence, gone),
        ranks=(first.rank,),
        others=gone,
        step=step.title,
        lines=(call.source, *map(evidence.last_line, gone)),
    )
    return Finding(kind=FindingKind.WENT_ALONE, facts=facts)
