"""A run that failed: whose fault it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lab.diagnosis.broken_links import find_broken_link
from lab.diagnosis.cause import error_cause
from lab.diagnosis.disagreement import differed_before, that_stop_a_run
from lab.diagnosis.ends import at_lines, blame, full_name, how_it_failed, went_alone, where_it_was
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import SEEN_LATER_S, RunFacts
from lab.diagnosis.finding import Finding, Judgement
from lab.diagnosis.hang import explain_stand_off
from lab.diagnosis.modules import way_to_module
from lab.diagnosis.odd_values import find_odd_values
from lab.diagnosis.outside import blows
from lab.diagnosis.peers import failed_in_torch, find_odd_one, gave_up, gave_way, lost_a_peer
from lab.diagnosis.rank_facts import RankFacts
from lab.diagnosis.rendezvous import explain_rendezvous
from lab.diagnosis.replicas import find_unlike_replicas
from lab.diagnosis.unanswered import left_by
from lab.diagnosis.weights import find_weights_apart
from lab.plan.present import HOST
from lab.record.events import NodeLost
from lab.record.result import Culprit
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import format_duration, name_nodes, name_ranks

_MISFITS = ("dtype", "shape", "splits")
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
        what, ranks = lost_together(facts, lost)
        first = next((rank.rank for rank in facts.ranks if rank.node == lost.node), None)
        culprit = Culprit(rank=first, node=lost.node, error=what)
        met = ", and the launcher's processes met there" if facts.starters and lost.node == HOST else ""
        return Judgement(verdict="failed", reason=f"{what}; {name_ranks(ranks)} ran there{met}", culprit=culprit)
    outside = blows(facts)
    if outside and all(map(gave_way, own)):
        return Judgement(verdict="failed", reason="; ".join(blow.what for blow in outside), culprit=outside[0].culprit)
    starter = min((one for one in facts.parents if one.failed), key=failed_at, default=None)
    if starter is not None and (not failed or failed_at(starter) < failed_at(failed[0])):
        return _blame_starter(evidence, starter)
    victim, then = failed[0], how_it_failed(evidence, failed[0])
    odd = find_odd_one(failed)
    if odd is not None:
        place = evidence.raised(facts.rank(odd.rank))
        where = f" at {place.at}" if place is not None else ""
        did = f"called {odd.call}{where} where most others called {odd.others}"
        return _blame(facts.rank(odd.rank), did, cause="mismatch")
    unlike = _unlike(evidence) if own and all(map(failed_in_torch, own)) else None
    if unlike is not None:
        return _judged_by(unlike, evidence, f"rank {victim.rank} then {then}")
    found = _odd_call(evidence) if all(map(failed_in_torch, own)) else None
    if found is not None:
        odd_rank = facts.rank(found.ranks[0])
        did = found.headline.removeprefix(f"rank {odd_rank.rank} ")
        if found.kind != "groups" or did == found.headline:
            did = f"did not call what the others called: {found.headline}"
        reason = f"{full_name(odd_rank)} {did}" + (
            f"; rank {victim.rank} then {then}" if victim is not odd_rank else ""
        )
        return Judgement(verdict="failed", reason=reason, culprit=blame(odd_rank, found.headline, cause=found.kind))
    if own:
        deeper = _misfit(evidence, own[0]) or _apart(evidence, own) or _given(evidence, own[0])
        if deeper is not None:
            brief = how_it_failed(evidence, own[0], brief=True)
            return _judged_by(deeper, evidence, f"rank {own[0].rank} then {brief}")
        then = way_to_module(facts, own[0]) or _to_nobody(evidence, own[0]) or differed_before(evidence, own[0].rank)
        return _blame(own[0], how_it_failed(evidence, own[0]), then)
    broken = find_broken_link(evidence)
    meeting = explain_rendezvous(evidence) if evidence.at_hand and not (broken and broken.link) else None
    if meeting is not None:
        return _judged_by(meeting, evidence, f"rank {victim.rank} then {then}")
    stuck = explain_stand_off(evidence) if evidence.at_hand else []
    if stuck:
        return _judged_by(stuck[0], evidence, f"rank {victim.rank} then {then}")
    gone = [rank.rank for rank in facts.ranks if rank.code == 0 and not rank.stopped]
    if len(gone) > len(facts.ranks) - len(gone) and left_by(evidence, victim.rank) is None:
        return _blame(victim, went_alone(evidence.raised(victim), gone), f": it {then}", cause="went_alone")
    if broken is not None:
        return _judged_by(broken, evidence, f"rank {victim.rank} then {how_it_failed(evidence, victim, brief=True)}")
    victim = next((rank for rank in failed if gave_up(rank)), victim)
    missed, then = missed_by(evidence, victim), how_it_failed(evidence, victim)
    if missed is None:
        return _blame(victim, then)
    return _blame(missed.rank, missed.did, f": rank {victim.rank} then {then}", victim.traceback, missed.kind)


def lost_together(facts: RunFacts, lost: NodeLost) -> tuple[str, list[int]]:
    """What befell a node, and those that were lost with it: `node1 was killed in mid-run`; and the ranks there."""
    together = (one for one in facts.lost_nodes if one.how == lost.how and abs(one.time - lost.time) <= SEEN_LATER_S)
    alike = {lost.node, *(one.node for one in together)}
    how = (lost.how if len(alike) == 1 else _of_several(lost.how)) or "went away"
    return f"{name_nodes(sorted(alike))} {how} in mid-run", [rank.rank for rank in facts.ranks if rank.node in alike]


def _of_several(how: str) -> str:
    """How several nodes were lost, from how one was."""
    return how.replace("was ", "were ", 1).replace("its host", "their host")


def _blame_starter(evidence: Evidence, starter: RankFacts) -> Judgement:
    """A worker that failed by itself after its script had started the ranks: it is none of them."""
    ranks = [rank.rank for rank in evidence.facts.ranks if rank.parent == starter.rank]
    whose = f", whose script started {name_ranks(ranks)}," if ranks else ""
    error = how_it_failed(evidence, starter)
    what = f"worker {starter.rank} ({starter.node}){whose} {error}"
    culprit = replace(blame(starter, error), rank=None)
    return Judgement(verdict="failed", reason=what, culprit=culprit)


def _blame(rank: RankFacts, error: str, then: str = "", traceback: str = "", cause: str = "") -> Judgement:
    reason = f"{full_name(rank)} {error}{then}"
    return Judgement(verdict="failed", reason=reason, culprit=blame(rank, error, traceback, cause))


def _judged_by(found: Finding, evidence: Evidence, then: str) -> Judgement:
    """What a finding says, and its first rank as the culprit, if it names one."""
    named = evidence.facts.rank(found.ranks[0]) if found.ranks else None
    culprit = blame(named, found.headline, cause=found.kind) if named is not None else None
    if found.link:
        culprit = Culprit(link=found.link, error=found.headline, cause=found.kind)
    return Judgement(verdict="failed", reason=f"{found.headline}; {then}", culprit=culprit)


def failed_at(rank: RankFacts) -> float:
    """When it failed: when it raised, or else when it ended."""
    return rank.raised or rank.ended or float("inf")


def _unlike(evidence: Evidence) -> Finding | None:
    """Replicas of a DDP module that are not alike: it refuses those."""
    found = find_unlike_replicas(evidence) if evidence.at_hand else []
    return next((finding for finding in found if finding.kind == "shape"), None)


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
            if found.ranks and (found.kind in ("groups", "rendezvous") or found.step in unended)
        ),
        None,
    )


def _misfit(evidence: Evidence, first: RankFacts) -> Finding | None:
    """That what ranks brought does not fit, in the message or collective that torch.distributed failed in."""
    hit = evidence.broken(first.rank) if failed_in_torch(first) and evidence.at_hand else None
    found = that_stop_a_run(evidence)[0] if hit is not None else []
    return next((one for one in found if hit and one.step == hit[1].title and one.kind in _MISFITS), None)


def _to_nobody(evidence: Evidence, first: RankFacts) -> str:
    """That a rank failed in a message to or from one that there is not, as a clause; empty where it did not."""
    hit = evidence.broken(first.rank) if evidence.at_hand else None
    peer = hit[0].peer if hit is not None else None
    return "" if peer is None or peer in evidence.ranks else f": there is no rank {peer}"


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


class Missed(NamedTuple):
    """Whom a rank missed that failed without a fault of its own, and what that one did."""

    rank: RankFacts
    did: str
    kind: str
    """`left_early` or `late`."""


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
        did = f"exited early, with code {first.code} after {format_duration(lived)}, while others still needed it"
        return Missed(first, did, "left_early")
    elsewhere = [rank for rank in ranks if rank.stack and not ((at := evidence.stood(rank)) and at.call)]
    if not elsewhere:
        return None
    where = where_it_was(evidence, elsewhere[0])
    if gave_up(victim):
        return Missed(elsewhere[0], f"was late: it was {where}", "late")
    return Missed(elsewhere[0], f"left the others while they still needed it, it was {where}", "left_early")


def _late(evidence: Evidence, victim: RankFacts, call: Call, step: Step) -> Missed | None:
    """The last of those to come for whom a rank had waited until it gave up; None where everybody came in time."""
    came = {rank: step.calls[rank].begin for rank in step.needs(call) if rank in step.calls}
    never = [rank for rank in step.needs(call) if rank not in came and rank in evidence.ranks]
    alive = [rank for rank in never if evidence.ranks[rank].alive]
    if alive:
        rank = evidence.ranks[alive[0]]
        where = f"; it was {where_it_was(evidence, rank)}" if rank.stack else ""
        return Missed(rank, f"had not come to {step.title} when rank {victim.rank} gave it up{where}", "late")
    last = max(came, key=lambda rank: came[rank], default=None)
    if never or last is None or call.end is None or came[last] <= call.end + step.apart_s:
        return None
    after = format_duration(came[last] - call.end)
    did = f"came to {step.title}{at_lines([step.calls[last]])} {after} after rank {victim.rank} had given it up"
    return Missed(evidence.ranks[last], did, "late")
