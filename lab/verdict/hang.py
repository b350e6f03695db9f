"""A run that did not go on: who never came, who waited, and where everybody was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.trace.steps import Step
from lab.verdict.disagreement import that_stop_a_run
from lab.verdict.ends import blame, together, what_it_did, where_it_was
from lab.verdict.evidence import Evidence
from lab.verdict.finding import Finding
from lab.verdict.judgement import Judgement
from lab.verdict.standing import Standing
from lab.verdict.waits import (
    Wait,
    describe_wait,
    find_cycle,
    find_waits,
    majority_step,
    missed_steps,
    waited,
)
from lab.words import capital, format_duration, listing, name_ranks, plural

NOBODYS_FAULT = frozenset({"deadlock", "mismatch", "dtype", "shape", "reduce_op", "root", "splits"})
"""Findings that, where they name nobody, say that nobody can be named."""


def judge_hang(evidence: Evidence) -> Judgement:
    """Say who was waited for: the stacks tell it, unless the trace knows better."""
    facts, standing = evidence.facts, Standing.of(evidence)
    culprit, error = standing.waited_for(evidence)
    clauses = [
        *together(standing.absent, lambda rank: f"was {where_it_was(evidence, evidence.ranks[rank])}"),
        *together(standing.waiting, lambda rank: f"waited {where_it_was(evidence, evidence.ranks[rank])}"),
        *together(standing.gone, lambda _: "had ended"),
    ]
    cause = _cause(evidence) if evidence.at_hand else None
    if cause is not None and _tells_more(cause, culprit):
        culprit, error = next(iter(cause.ranks), None), cause.headline
        clauses.insert(0, cause.headline)
    reason = f"no end after {format_duration(facts.timeout_s)}: {'; '.join(clauses)}"
    return Judgement(
        verdict="hung", reason=reason, culprit=None if culprit is None else blame(facts.rank(culprit), error)
    )


def _cause(evidence: Evidence) -> Finding | None:
    """What the trace says first; None where that is about no step."""
    stopping, other = that_stop_a_run(evidence)
    found = stopping or explain_hang(evidence, stopping) or other
    return found[0] if found and found[0].step else None


def _tells_more(cause: Finding, culprit: int | None) -> bool:
    """Whether the trace blames somebody else than the stacks do, or knows that nobody can be blamed."""
    if cause.ranks:
        return culprit not in cause.ranks
    return cause.kind in NOBODYS_FAULT


def explain_hang(evidence: Evidence, differing: Sequence[Finding]) -> list[Finding]:
    """What kept the run from going on; whoever waits after ranks called differently waits because of that."""
    waits = find_waits(evidence)
    findings = []
    cycle = find_cycle(waits)
    messages = all(waits[rank].step.message for rank in cycle)
    if cycle and (messages or (majority_step(waits) is None and not differing)):
        findings.append(_ring(cycle, waits, evidence))
    ring = set(cycle) if findings else set()
    for step, waiting, missing in missed_steps(waits):
        if not (ring and set(waiting) <= ring):
            explained = bool(findings or differing)
            findings.append(_missed(step, waiting, missing, waits, evidence, explained=explained))
    findings += _all_there(waits, evidence, named={finding.step for finding in differing})
    return findings or ([] if differing or waits else _no_waits(evidence))


def _missed(
    step: Step,
    waiting: tuple[int, ...],
    missing: tuple[int, ...],
    waits: dict[int, Wait],
    evidence: Evidence,
    *,
    explained: bool,
) -> Finding:
    """A step that some ranks waited in and others never entered."""
    free = tuple(rank for rank in missing if rank not in waits)
    gone = tuple(rank for rank in free if rank in evidence.ranks and not evidence.ranks[rank].alive)
    ours = [waits[rank] for rank in waiting]
    did = _what_they_did(missing, waits, evidence)
    verb = "never sent" if ours[0].call.operation.receives else "never received" if step.message else "never entered"
    what = step.title if not step.message else describe_wait(ours[0]).partition(" at ")[0]
    lines = listing(wait.call.source for wait in ours)
    took = f"{format_duration(waited(evidence, ours))}{f', at {lines}' if lines else ''}"
    if step.message:
        sentence = f"{name_ranks(waiting)} waited in {what} {took}: {name_ranks(missing)} {verb}. {capital(did)}."
    else:
        sentence = (
            f"{name_ranks(missing)} {verb} {step.title}. {capital(name_ranks(waiting))} waited there {took}; {did}."
        )
    kind, ranks = "never_entered", free
    if gone and len(gone) == len(free):
        alone = len(gone) > len(waiting)
        kind, ranks = ("went_alone", waiting) if alone else (_how_gone(gone, evidence), gone)
    elif not free:
        kind = "elsewhere"
        ranks = missing if majority_step(waits) == step.number and not explained else ()
    found = _finding(kind, sentence, evidence, waits, waiting, ranks, step)
    return replace(found, others=tuple(rank for rank in (*missing, *waiting) if rank not in ranks))


def _how_gone(gone: Sequence[int], evidence: Evidence) -> str:
    return "left_early" if all(evidence.ranks[rank].left for rank in gone) else "failed"


def _what_they_did(ranks: Sequence[int], waits: dict[int, Wait], evidence: Evidence) -> str:
    return listing(together(ranks, lambda rank: what_it_did(evidence, rank, waits)))


def _finding(
    kind: str,
    sentence: str,
    evidence: Evidence,
    waits: dict[int, Wait],
    others: Sequence[int],
    ranks: Sequence[int] = (),
    step: Step | None = None,
) -> Finding:
    """A finding with the lines where ranks were, and for how long the others had waited."""
    lines = []
    for rank in (*ranks, *others):
        facts = evidence.ranks.get(rank)
        place = evidence.place(facts) if facts is not None and not facts.left else None
        calls = evidence.calls(rank)
        if rank in waits:
            lines.append(waits[rank].call.source)
        elif place is not None:
            lines.append(place.at)
        elif calls:
            lines.append(calls[-1].source)
    ours = [waits[rank] for rank in others if rank in waits]
    return Finding(
        kind=kind,
        sentence=sentence,
        ranks=tuple(ranks),
        others=tuple(others),
        step=step.title if step is not None else "",
        lines=tuple(lines),
        seconds=round(waited(evidence, ours), 6) if ours else None,
    )


def _ring(cycle: Sequence[int], waits: dict[int, Wait], evidence: Evidence) -> Finding:
    """Ranks that wait for each other in a ring."""
    ours = [waits[rank] for rank in cycle]
    chain = " → ".join(map(str, (*cycle, cycle[0])))
    each = listing(f"rank {wait.rank} in {describe_wait(wait)}" for wait in ours)
    took = format_duration(waited(evidence, ours))
    sentence = f"{name_ranks(cycle)} wait for each other in a ring ({chain}), for {took} now: {each}. {_advice(ours)}"
    return _finding("deadlock", sentence, evidence, waits, sorted(cycle), step=ours[0].step)


def _advice(ring: Sequence[Wait]) -> str:
    """What would have kept such a ring from closing."""
    ops = [wait.call.operation for wait in ring]
    if not any(wait.step.message for wait in ring):
        return "Ranks have to enter the collectives of several groups in the same order."
    if all(op.receives for op in ops):
        return "All of them receive before they send: one has to send first."
    if all(op.sends for op in ops):
        return "All of them send before they receive: one has to receive first."
    return "None of these calls can end before another one does."


def _all_there(waits: dict[int, Wait], evidence: Evidence, named: set[str]) -> list[Finding]:
    """Steps that everybody entered and that did not end all the same."""
    findings = []
    for number in dict.fromkeys(wait.step.number for wait in waits.values() if not wait.on):
        ours = [wait for wait in waits.values() if wait.step.number == number]
        step = ours[0].step
        if step.title in named or (len({call.op for call in step.calls.values()}) > 1 and not step.message):
            continue
        ranks = tuple(wait.rank for wait in ours)
        sentence = (
            f"Everybody entered {step.title}, and {name_ranks(ranks)} never came out of it "
            f"({format_duration(waited(evidence, ours))}, at {listing(wait.call.source for wait in ours)}): "
            "the data did not arrive, or there was no time left for it."
        )
        findings.append(_finding("in_flight", sentence, evidence, waits, ranks, step=step))
    return findings


def _no_waits(evidence: Evidence) -> list[Finding]:
    """Nobody waited in a call on record: where everybody was."""
    standing = Standing.of(evidence)
    outside = [rank for rank in standing.absent if evidence.ranks[rank].stack]
    alive = sorted([*standing.waiting, *outside])
    if not alive:
        return []
    did = _what_they_did(alive, {}, evidence)
    calls = {place.call for rank in alive if (place := evidence.stood(evidence.ranks[rank])) is not None}
    if calls == {"init_process_group"}:
        did += (
            ": the rendezvous waits until as many ranks have come as world_size says, here more than the "
            f"{plural(len(evidence.ranks), 'rank')} that there are, or one that went elsewhere"
        )
        return [_finding("rendezvous", f"{did}.", evidence, {}, alive)]
    if standing.waiting and outside:
        return [_finding("never_entered", f"{did}.", evidence, {}, standing.waiting, outside)]
    if outside:
        sentence = f"Nobody waited in a collective or for a message: {did}."
        return [_finding("own_code", sentence, evidence, {}, alive)]
    odd, _ = standing.waited_for(evidence)
    sentence = f"Everybody was in torch.distributed: {did}."
    if odd not in alive or evidence.traced:
        return [_finding("waiting", sentence, evidence, {}, alive)]
    sentence += f" Rank {odd} was not where most others were."
    return [_finding("waiting", sentence, evidence, {}, [rank for rank in alive if rank != odd], [odd])]
