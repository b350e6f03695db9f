"""What a failure did to the other ranks: the findings on a run that failed."""

from __future__ import annotations

from collections.abc import Sequence

from lab.diagnosis.broken_links import find_broken_link
from lab.diagnosis.ends import at_lines, full_name, how_it_failed, last_call, refusal
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.failure import Missed, failed_at, judge_failure, lost_together, missed_by
from lab.diagnosis.finding import Finding
from lab.diagnosis.hang import explain_stand_off
from lab.diagnosis.peers import gave_up, is_loss, lost_a_peer
from lab.diagnosis.rank_facts import RankFacts
from lab.diagnosis.rendezvous import explain_rendezvous
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import capital, name_ranks, was


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
    place, missed = evidence.place(first), _missed_by_first(evidence)
    kind, head, ranks = "left_early", full_name(first), [first.rank]
    lost = next((one for one in evidence.facts.lost_nodes if one.node == first.node), None)
    if first.node_lost and lost is not None:
        what, ranks = lost_together(evidence.facts, lost)
        kind, head = "failed", f"{what}; {name_ranks(ranks)} ran there"
    elif first.node_lost:
        kind, head = "failed", f"rank {first.rank}'s node, {first.node}, went away"
    elif missed is not None and missed.rank is first and missed.kind == "late":
        kind, head = "late", f"{head} {missed.did}"
    elif first.left:
        head += f" ended with code {first.code}"
    elif first.failed:
        kind, head = "failed", f"{head} {how_it_failed(evidence, first, brief=True)}"
    elif place is not None:
        head += f" was {place.sentence()} and no longer with the others"
    else:
        return []
    hit = _hit(evidence, ranks)
    ended = {last_call(evidence, rank) for rank in ranks}
    last = ended.pop() if len(ended) == 1 else ""
    sentence = f"{capital(head)}, {last}." if last else f"{capital(head)}."
    sentence += "".join(f" {capital(_found(step, calls))}." for step, calls in hit[:3])
    found = [call for _, calls in hit for call in calls]
    return [
        Finding(
            kind=kind,
            sentence=sentence,
            ranks=tuple(ranks),
            others=tuple(sorted(call.rank for call in found)),
            step=hit[0][0].title if hit else "",
            lines=(place.at if place else evidence.last_line(first.rank), *(call.source for call in found)),
        )
    ]


def _missed_by_first(evidence: Evidence) -> Missed | None:
    """Whom the rank missed that failed first, if it failed for want of a peer."""
    failed = sorted((rank for rank in evidence.facts.ranks if rank.failed and lost_a_peer(rank)), key=failed_at)
    victim = next((rank for rank in failed if gave_up(rank)), failed[0] if failed else None)
    return missed_by(evidence, victim) if victim is not None else None


def _hit(evidence: Evidence, ended: Sequence[int]) -> list[tuple[Step, list[Call]]]:
    """The steps in which the end of some ranks found others, and their calls."""
    found: dict[int, tuple[Step, list[Call]]] = {}
    for rank in evidence.facts.ranks:
        hit = evidence.broken(rank.rank) if rank.rank not in ended and not rank.left else None
        if hit is not None:
            found.setdefault(hit[1].number, (hit[1], []))[1].append(hit[0])
    return sorted(found.values(), key=lambda item: -len(item[1]))


def _found(step: Step, calls: Sequence[Call]) -> str:
    ranks = [call.rank for call in calls]
    what = step.title if not step.message else f"{calls[0].op} ({step.title})"
    errors = [call.error for call in calls if call.error]
    if len(errors) == len(calls) and not any(map(is_loss, errors)):
        return refusal(what, calls)
    lost = " and failed there" if errors else ""
    return f"{name_ranks(ranks)} {was(ranks)} in {what}{at_lines(calls)}{lost}"


def _went_alone(evidence: Evidence, first: RankFacts) -> Finding | None:
    """That a rank failed in a call because all whom it needed there had ended with code 0."""
    hit = evidence.broken(first.rank) if first.failed else None
    if hit is None:
        return None
    (call, step), ranks = hit, evidence.ranks
    gone = step.missing
    if len(gone) <= len(step.calls) or not all(rank in ranks and ranks[rank].left for rank in gone):
        return None
    ended = {last_call(evidence, rank) for rank in gone}
    how = f" {next(iter(ended))}".rstrip() if len(ended) == 1 else ""
    sentence = (
        f"{full_name(first)} went on alone: it called {step.title}{at_lines([call])}, which {name_ranks(gone)} never "
        f"{'called' if not step.message else 'answered'}; they had ended with code 0{how}."
    )
    lines = (call.source, *map(evidence.last_line, gone))
    return Finding(kind="went_alone", sentence=sentence, ranks=(first.rank,), others=gone, step=step.title, lines=lines)
