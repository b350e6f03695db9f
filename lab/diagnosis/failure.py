"""Explain a run that failed: which rank is responsible, and how the failure affected the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from lab.diagnosis import ends, errors, wording
from lab.diagnosis.ends import calls_at, common_progress, culprit_by, end_of, make_culprit, stood_of
from lab.diagnosis.evidence import Evidence, Judgement, apply_rules
from lab.diagnosis.facts import DETECTION_LAG_S, RankFacts, RunFacts
from lab.diagnosis.finding import CallFacts, End, Finding, FindingKind, Hit, Missed
from lab.diagnosis.hang import blame_side, differed_before, explain_stand_off, independent_of, split_disagreements
from lab.diagnosis.wording import FirstFailure, WentAlone
from lab.feature import find_hook
from lab.plan.plan import HOST
from lab.record.events import NodeLost
from lab.record.result import Culprit
from lab.trace.model import Call
from lab.trace.steps import Step

_LEAST_ALIKE = 2
"""This many ranks with the same error have the same cause."""


def judge_failure(evidence: Evidence) -> Judgement:
    """Return the judgement on a run that failed.

    The culprit is the earliest rank or node that failed by itself. A rank that lost its peer is secondary. If only such
    ranks failed, the culprit is the rank that left the others: it exited, or went on without them.
    """
    facts = evidence.facts
    failed = sorted((rank for rank in facts.ranks if rank.failed), key=failed_at)
    own = [rank for rank in failed if not errors.lost_a_peer(rank)]
    lost = min(facts.lost_nodes, key=lambda node: node.time, default=None)
    if lost is not None and (not own or lost.time <= failed_at(own[0])):
        return _blame_node(facts, lost)
    if (outside := ends.find_external_causes(evidence)) and all(map(errors.seems_timed_out, own)):
        reason, culprit = "; ".join(one.headline for one in outside), culprit_by(outside[0], evidence)
        return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=tuple(outside))
    starter = min((one for one in facts.parents if one.failed), key=failed_at, default=None)
    blame_starter = find_hook("blame_starter") if starter is not None else None
    if blame_starter and starter and (not failed or failed_at(starter) < failed_at(failed[0])):
        return cast("Judgement", blame_starter(evidence, starter))
    victim = failed[0]
    if (different := _different_call(evidence, failed, own)) is not None:
        return different
    if own:
        if (deeper := _deeper(evidence, own)) is not None:
            return _judge_by(deeper, evidence, own[0], brief=True)
        return _blame_own(evidence, own)
    broken = next(iter(apply_rules(evidence, "connections")), None)
    stuck = apply_rules(evidence, "rendezvous") if evidence.trace.recorded and not (broken and broken.link) else []
    stuck = stuck or (explain_stand_off(evidence) if evidence.trace.recorded else [])
    if stuck:
        return _judge_by(stuck[0], evidence, victim)
    if (alone := _went_alone(evidence, victim)) is not None:
        if not alone.ranks:
            return _judge_by(alone, evidence, victim)
        return _blame(victim, alone, wording.it_failed(end_of(evidence, victim)))
    if broken is not None:
        return _judge_by(broken, evidence, victim, brief=True)
    victim = next((rank for rank in failed if errors.has_timed_out(rank)), victim)
    missed, end = missed_by(evidence, victim), end_of(evidence, victim)
    if missed is None:
        return _blame(victim, _failed(victim, end))
    early, ranks, others = missed.how in ("exited", "left"), (missed.rank,), (victim.rank,)
    what: Literal["left", "late"] = "left" if early else "late"
    kind = FindingKind.LEFT_EARLY if early else FindingKind.LATE
    finding = FirstFailure(kind=kind, what=what, node=missed.node, missed=missed, ranks=ranks, others=others)
    return _blame(facts.rank(missed.rank), finding, f": {wording.then_failed(victim.rank, end)}")


# -- judgements


def _blame_node(facts: RunFacts, lost: NodeLost) -> Judgement:
    first = _lost_together(facts, lost)
    rank = next((rank.rank for rank in facts.ranks if rank.node == lost.node), None)
    reason = wording.node_reason(first, launcher=bool(facts.starters) and lost.node == HOST)
    culprit = Culprit(rank=rank, node=lost.node, error=first.name_lost(), cause="node_lost")
    summary = first.name_lost(when="")
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(first,), summary=summary)


def _lost_together(facts: RunFacts, lost: NodeLost) -> FirstFailure:
    """Return how a node was lost, the nodes that went with it, and their ranks."""
    together = (one for one in facts.lost_nodes if one.how == lost.how and abs(one.time - lost.time) <= DETECTION_LAG_S)
    nodes = {lost.node, *(one.node for one in together)}
    ranks = tuple(rank.rank for rank in facts.ranks if rank.node in nodes)
    return FirstFailure(what="nodes_lost", node=lost.node, nodes=tuple(sorted(nodes)), how=lost.how, ranks=ranks)


def _different_call(evidence: Evidence, failed: Sequence[RankFacts], own: Sequence[RankFacts]) -> Judgement | None:
    """Return a judgement on the rank whose call differs from most others; None if none does.

    PyTorch's errors or the trace show the calls.
    """
    if (deviating := errors.find_deviating_call(failed)) is not None:
        rank = evidence.facts.rank(deviating.ranks[0])
        location = evidence.raise_location(rank)
        return _blame(rank, replace(deviating, lines=(location.at,) if location else ()))
    if not (all(map(errors.failed_in_torch, own)) and evidence.trace.recorded):
        return None
    unlike = [one for one in apply_rules(evidence, "state") if one.kind is FindingKind.SHAPE] if own else []
    if unlike:  # DDP raises for such replicas
        return _judge_by(unlike[0], evidence, failed[0])
    makes_worlds = (FindingKind.GROUPS, FindingKind.RENDEZVOUS)
    stopping = split_disagreements(evidence)[0]
    for n, one in enumerate(stopping):
        if one.kind in makes_worlds or one.step in evidence.unfinished_steps:
            besides = independent_of(one, stopping[n + 1 :])
            if not one.ranks:  # half of the ranks called something else
                return _judge_by(one, evidence, failed[0], besides=besides)
            rank = evidence.facts.rank(one.ranks[0])
            end = end_of(evidence, failed[0]) if failed[0] is not rank else None
            reason = wording.deviating_call_reason(one, rank.rank, rank.node, failed[0].rank, end)
            return _judge_by(one, evidence, failed[0], reason, besides=besides)
    return None


def _blame_own(evidence: Evidence, own: Sequence[RankFacts]) -> Judgement:
    """Return a judgement on the first rank that failed by itself, and on others that failed for another reason."""
    named = _named_by_others(own)
    own = own if named is None else [named, *(rank for rank in own if rank is not named)]
    first, end = own[0], end_of(evidence, own[0])
    hit = evidence.broken_call(first.rank) if evidence.trace.recorded else None
    peer, then = hit[0].peer if hit is not None else None, errors.way_to_missing(evidence.facts, first)
    if not then and peer is not None and peer not in evidence.ranks:
        then = wording.no_such_rank(peer)
    before = None if then else differed_before(evidence, first.rank)
    finding = replace(_failed(first, end), alike=_failed_alike(evidence, first))
    judgement = _blame(first, finding, finding.name_alike() + (wording.named_by(first.rank) if named else "") + then)
    others = [_failed(rank, end_of(evidence, rank, brief=True)) for rank in _independent(evidence, own)]
    reason = wording.own_reason(judgement.reason, before, others)
    return replace(judgement, reason=reason, findings=(*judgement.findings, *others))


def _named_by_others(own: Sequence[RankFacts]) -> RankFacts | None:
    """Return the rank that the errors of other ranks name, if it failed too and not all ranks that failed are named."""
    known, named = {rank.rank: rank for rank in own}, errors.find_named_ranks(own[0].error)
    by_others = any(errors.find_named_ranks(rank.error) == named for rank in own if rank.rank not in named)
    return known[min(named)] if named and by_others and named < known.keys() else None


def _independent(evidence: Evidence, own: Sequence[RankFacts]) -> list[RankFacts]:
    """Return ranks whose failures are independent of the first failure.

    They raised another error at another line before the first rank ended. A rank may have failed because of the first
    rank if it failed in torch.distributed or seems to have timed out.
    """
    first, independent = own[0], dict[tuple[str, str], RankFacts]()
    for rank in own[1:]:
        raised = _raised_as(evidence, rank)
        in_torch = any(map(errors.failed_in_torch, (rank, first)))
        by_itself = not (in_torch or errors.seems_timed_out(rank) or rank.out_of_memory)
        at_once = rank.raised is not None and first.ended is not None and rank.raised <= first.ended
        if raised not in (None, _raised_as(evidence, first)) and by_itself and at_once:
            independent.setdefault(raised, rank)
    return [*independent.values()]


def _failed(rank: RankFacts, end: End) -> FirstFailure:
    return FirstFailure(what="failed", node=rank.node, end=end, location=end.location, ranks=(rank.rank,))


def _blame(rank: RankFacts, finding: Finding, then: str = "") -> Judgement:
    """Return a judgement that names a rank as the culprit, in the words of a finding."""
    did, cause = finding.what_it_did(), "" if finding.kind is FindingKind.FAILED else finding.cause
    reason, summary = f"{wording.full_name(rank.rank, rank.node)} {did}{then}", f"rank {rank.rank} {did}"
    culprit = make_culprit(rank, did, cause)
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(finding,), summary=summary)


def _judge_by(
    finding: Finding,
    evidence: Evidence,
    victim: RankFacts,
    reason: str = "",
    *,
    brief: bool = False,
    besides: Sequence[Finding] = (),
) -> Judgement:
    """Return a judgement with the words of a finding, and with the culprit that it names."""
    headline, culprit = finding.headline, culprit_by(finding, evidence)
    reason = reason or f"{headline}; {wording.then_failed(victim.rank, end_of(evidence, victim, brief=brief))}"
    reason = wording.own_reason(reason, None, besides)
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(finding, *besides), summary=headline)


def failed_at(rank: RankFacts) -> float:
    """Return when a rank failed: when it raised, or else when it ended."""
    return rank.raised or rank.ended or float("inf")


def _deeper(evidence: Evidence, own: Sequence[RankFacts]) -> Finding | None:
    """Return the cause of the first failure, if it is in arguments that do not fit, or in deviating state or values."""
    first, deeper = own[0], list[Finding]()
    hit = evidence.broken_call(first.rank) if errors.failed_in_torch(first) else None
    if hit is not None:
        stopping = (one for one in split_disagreements(evidence)[0] if one.step == hit[1].title)
        deeper += [one for one in stopping if "misfit" in one.kind.properties]
    if hit is not None and not deeper and first.signal:  # gloo aborts when data of an earlier call does not fit
        before = differed_before(evidence, first.rank)
        deeper += [before] if before is not None and before.ranks and "misfit" in before.kind.properties else []
    raised = _raised_as(evidence, first)
    alike = [rank for rank in own if raised is not None and _raised_as(evidence, rank) == raised]
    if not deeper and len(alike) >= _LEAST_ALIKE:  # ranks with one error at one line have compared their state
        deeper += [one for one in apply_rules(evidence, "state") if one.ranks]
    if not deeper and errors.error_cause(first.error) == "not_a_number":
        deeper += [one for one in apply_rules(evidence, "values") if one.ranks and one.others]
    return deeper[0] if deeper else None


def _failed_alike(evidence: Evidence, first: RankFacts) -> tuple[int, ...]:
    """Return the other ranks that raised the same error at the same line."""
    raised = _raised_as(evidence, first)
    others = [rank for rank in evidence.facts.ranks if raised and rank is not first]
    alike = (rank for rank in others if _raised_as(evidence, rank) == raised and errors.is_same_error(rank, first))
    return tuple(rank.rank for rank in alike)


def _raised_as(evidence: Evidence, rank: RankFacts) -> tuple[str, str] | None:
    """Return the type of a rank's error and its line; None if unknown."""
    location = evidence.raise_location(rank)
    return None if location is None else (rank.error.partition(":")[0], location.at)


def missed_by(evidence: Evidence, victim: RankFacts) -> Missed | None:
    """Return the rank that a failed rank missed: it was gone or late; None if there is no such rank."""
    ranks = evidence.facts.ranks
    before = failed_at(victim) + DETECTION_LAG_S
    hit = evidence.broken_call(victim.rank) if evidence.trace.recorded else None
    known = evidence.ranks if hit is None else hit[1].group.ranks
    absent = hit[1].missing if hit is not None else ()  # its process may take a while to end
    left = [rank for rank in ranks if rank.left and rank.rank in known]
    gone = [rank for rank in left if rank.rank in absent or (rank.ended or 0.0) <= before]
    blamed = blame_side(evidence, victim, [one.rank for one in gone])
    needed = [one for one in gone if one.rank in absent or (hit is not None and one.rank in blamed)]
    late = _late(evidence, victim, *hit) if hit is not None and errors.has_timed_out(victim) and not needed else None
    if late is not None:
        return late
    if gone:
        first = min(needed or gone, key=lambda rank: rank.ended or 0.0)
        lived = (first.ended or 0.0) - (first.started or first.ended or 0.0)
        source = evidence.exit_line(first.rank) if first.code == 0 else ""
        facts = {"code": first.code, "seconds": lived, "source": source}
        return _make_missed(first, victim, how="exited", after=ends.progress_of(evidence, first.rank), **facts)
    stacks = (one for one in ranks if one.stack)
    elsewhere = next((one for one in stacks if not ((at := evidence.stack_location(one)) and at.call)), None)
    if elsewhere is None:
        return None
    how = "was_late" if errors.has_timed_out(victim) else "left"
    return _make_missed(elsewhere, victim, how=how, stood=stood_of(evidence, elsewhere))


def _make_missed(rank: RankFacts, victim: RankFacts, **facts: Any) -> Missed:
    return Missed(rank=rank.rank, node=rank.node, victim=victim.rank, **facts)


def _late(evidence: Evidence, victim: RankFacts, call: Call, step: Step) -> Missed | None:
    """Return the last needed rank to enter after the victim had given up; None if all entered in time."""
    came = {rank: step.calls[rank].begin for rank in step.needs(call) if rank in step.calls}
    never = [evidence.ranks[rank] for rank in step.needs(call) if rank not in came and rank in evidence.ranks]
    for facts in (rank for rank in never if rank.alive):
        stood = stood_of(evidence, facts) if facts.stack else None
        return _make_missed(facts, victim, how="never_came", step=step.title, stood=stood)
    last = max(came, key=lambda rank: came[rank], default=None)
    if never or last is None or call.end is None or came[last] <= call.end + step.uncertainty_s:
        return None
    late_s, source, rank = came[last] - call.end, step.calls[last].source, evidence.ranks[last]
    is_before = rank.stack_time is not None and rank.stack_time - evidence.trace.origin < came[last]
    stood = stood_of(evidence, rank) if is_before else None
    return _make_missed(rank, victim, how="came_late", seconds=late_s, step=step.title, source=source, stood=stood)


# -- how a failure affected the other ranks


def explain_failure(evidence: Evidence, culprit: int | None) -> list[Finding]:
    """Return who failed first, or the known culprit, and in which calls this affected the others."""
    if (stuck := explain_stand_off(evidence)) and (culprit is None or culprit in stuck[0].ranks):
        return stuck
    link = apply_rules(evidence, "connections")[:1]
    if link and (culprit is None or culprit in link[0].ranks):
        return link
    if culprit is None:
        judged = judge_failure(evidence)
        if judged.culprit is None:
            return [*judged.findings]
        culprit = judged.culprit.rank
    first = evidence.ranks.get(-1 if culprit is None else culprit)
    if first is None:
        return []
    meeting = apply_rules(evidence, "rendezvous")[:1] if errors.lost_a_peer(first) else []
    return meeting or [*filter(None, [_went_alone(evidence, first) or _explain_first(evidence, first)])]


def _explain_first(evidence: Evidence, first: RankFacts) -> Finding | None:
    """Return how the first rank failed, and the steps in which this affected others."""
    location = evidence.last_location(first)
    failed = sorted((rank for rank in evidence.facts.ranks if rank.failed and errors.lost_a_peer(rank)), key=failed_at)
    victim = next((rank for rank in failed if errors.has_timed_out(rank)), failed[0] if failed else None)
    missed = missed_by(evidence, victim) if victim is not None else None
    by_itself = first.failed and not errors.lost_a_peer(first)
    lost = next((one for one in evidence.facts.lost_nodes if one.node == first.node), None)
    facts = FirstFailure(kind=FindingKind.LEFT_EARLY, what="left", node=first.node, ranks=(first.rank,))
    if first.node_lost:
        alone = replace(facts, kind=FindingKind.FAILED, what="node_lost")
        facts = _lost_together(evidence.facts, lost) if lost is not None else alone
    elif missed is not None and missed.rank == first.rank and missed.how not in ("exited", "left") and not by_itself:
        facts = replace(facts, kind=FindingKind.LATE, what="late", missed=missed)
    elif first.left:
        facts = replace(facts, code=first.code)
    elif first.failed:
        alike, end = _failed_alike(evidence, first), end_of(evidence, first, brief=True)
        facts = replace(facts, kind=FindingKind.FAILED, what="failed", end=end, alike=alike)
    elif location is not None:
        facts = replace(facts, what="strayed", location=location)
    else:
        return None
    left_at = evidence.exit_line(first.rank) if first.left else ""
    hits = _hits(evidence, facts.ranks)
    calls = [call for _, hit in hits for call in hit]
    return replace(
        facts,
        progress=common_progress(evidence, facts.ranks),
        hits=tuple(
            Hit(name=f"{hit[0].op} ({step.title})" if step.message else step.title, calls=calls_at(hit))
            for step, hit in hits
        ),
        others=tuple(sorted(call.rank for call in calls)),
        step=hits[0][0].title if hits else "",
        lines=(
            location.at if location else left_at if ":" in left_at else evidence.last_line(first.rank),
            *(call.source for call in calls),
        ),
    )


def _hits(evidence: Evidence, ended: Sequence[int]) -> list[tuple[Step, list[Call]]]:
    """Return the steps in which the end of some ranks affected others, with the calls of the others."""
    hits: dict[int, tuple[Step, list[Call]]] = {}
    for rank in evidence.facts.ranks:
        hit = evidence.broken_call(rank.rank) if rank.rank not in ended and not rank.left else None
        if hit is not None:
            hits.setdefault(hit[1].number, (hit[1], []))[1].append(hit[0])
    return sorted(hits.values(), key=lambda item: -len(item[1]))


def _went_alone(evidence: Evidence, first: RankFacts) -> WentAlone | None:
    """Return a finding if a rank failed because at least half of the ranks that it needed had ended with code 0.

    If it was half of them, either side may have made a call too many or too few. Unless something shows which, it names
    no rank.
    """
    if not first.failed or not errors.lost_a_peer(first):
        return None
    hit = evidence.broken_call(first.rank) if evidence.trace.recorded else None
    ranks, members = evidence.ranks, hit[1].expected if hit is not None else tuple(evidence.ranks)
    absent = hit[1].missing if hit is not None else members
    gone = tuple(one for one in absent if one in ranks and ranks[one].left)
    is_tie = 2 * len(gone) == len(members)
    blamed = blame_side(evidence, first, gone) if is_tie else ()
    if not gone or 2 * len(gone) < len(members) or not {*gone}.isdisjoint(blamed):
        return None
    is_tie = is_tie and not blamed
    location = evidence.raise_location(first)
    call = CallFacts(rank=first.rank, name=location.call, source=location.at) if location is not None else None
    return WentAlone(
        kind=FindingKind.LEFT_EARLY if is_tie else FindingKind.WENT_ALONE,
        node=first.node,
        call=calls_at([hit[0]])[0] if hit is not None else call,
        location=location if hit is None else None,
        message=hit is not None and hit[1].message,
        progress=common_progress(evidence, gone),
        ranks=() if is_tie else (first.rank,),
        others=(first.rank, *gone) if is_tie else gone,
        step=hit[1].title if hit is not None else "",
        lines=(hit[0].source if hit is not None else "", *map(evidence.last_line, gone)),
    )
