"""A run that did not go on: who never came, who waited, and where everybody was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lab.trace.steps import Step
from lab.verdict.disagreement import that_stop_a_run
from lab.verdict.ends import together, what_it_did, where_it_was
from lab.verdict.evidence import Evidence
from lab.verdict.facts import RankFacts
from lab.verdict.finding import Finding
from lab.verdict.judgement import Judgement, blame, went_alone
from lab.verdict.waits import (
    Wait,
    describe_wait,
    describe_waiting,
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
    ranks = evidence.facts.ranks
    calls = {rank.rank: where_it_was(evidence, rank) for rank in ranks if (at := evidence.stood(rank)) and at.call}
    waiting = [rank for rank in ranks if rank.rank in calls]
    absent = [rank for rank in ranks if rank.alive and rank not in waiting]
    gone = sorted((rank for rank in ranks if not rank.alive), key=lambda rank: rank.ended or 0.0)
    culprit, error = _waited_for(evidence, waiting, absent, gone)
    clauses = [
        *together(_numbers(absent), lambda rank: f"was {where_it_was(evidence, evidence.ranks[rank])}"),
        *together(_numbers(waiting), lambda rank: f"waited {calls[rank]}"),
        *together(_numbers(gone), lambda _: "had ended"),
    ]
    cause = _cause(evidence) if evidence.at_hand else None
    if cause is not None and _tells_more(cause, culprit):
        culprit, error = next((rank for rank in ranks if rank.rank in cause.ranks), None), cause.headline
        clauses.insert(0, cause.headline)
    reason = f"no end after {format_duration(evidence.facts.timeout_s)}: {'; '.join(clauses)}"
    return Judgement(verdict="hung", reason=reason, culprit=None if culprit is None else blame(culprit, error))


def _cause(evidence: Evidence) -> Finding | None:
    """What the trace says first; None where that is about no step."""
    stopping, other = that_stop_a_run(evidence)
    found = stopping or explain_hang(evidence, stopping) or other
    return found[0] if found and found[0].step else None


def _numbers(ranks: Sequence[RankFacts]) -> list[int]:
    return [rank.rank for rank in ranks]


def _tells_more(cause: Finding, culprit: RankFacts | None) -> bool:
    """Whether the trace blames somebody else than the stacks do, or knows that nobody can be blamed."""
    if cause.ranks:
        return culprit is None or culprit.rank not in cause.ranks
    return cause.kind in NOBODYS_FAULT


def _waited_for(
    evidence: Evidence, waiting: Sequence[RankFacts], absent: Sequence[RankFacts], gone: Sequence[RankFacts]
) -> tuple[RankFacts | None, str]:
    """Who kept the others waiting and what it did, as far as stacks tell."""
    if absent:
        missed = "did not come to the collective that others waited in, it " if waiting else ""
        return absent[0], f"{missed}was {where_it_was(evidence, absent[0])}"
    if len(gone) > len(waiting):
        return (waiting[0], went_alone(evidence.stood(waiting[0]), _numbers(gone))) if waiting else (None, "")
    if gone and waiting:
        return gone[0], "exited early, with code 0, while others waited for it"
    places = Counter(where_it_was(evidence, rank) for rank in waiting)
    common, count = places.most_common(1)[0] if places else ("", 0)
    if len(places) == 1 or 2 * count <= len(waiting):
        return None, ""  # no majority: whose call is the wrong one cannot be told from where they stand
    odd = next(rank for rank in waiting if where_it_was(evidence, rank) != common)
    return odd, f"was {where_it_was(evidence, odd)} while others were {common}"


def explain_hang(evidence: Evidence, differing: Sequence[Finding], culprit: int | None = None) -> list[Finding]:
    """What kept the run from going on.

    Args:
        evidence: of the run.
        differing: what ranks called differently; whoever waits after that waits because of it.
        culprit: whom the verdict names; told where there is no trace to find more.
    """
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
    return findings or ([] if differing or waits else _no_waits(evidence, culprit))


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
    if step.message:
        head = f"{capital(name_ranks(waiting))} waited in {what} {format_duration(waited(evidence, ours))}"
        head += f", at {listing(wait.call.source for wait in ours)}: {name_ranks(missing)} {verb}"
        sentence = f"{head}. {capital(did)}."
    else:
        head = f"{capital(name_ranks(missing))} {verb} {step.title}"
        sentence = f"{head}. {capital(describe_waiting(evidence, waiting, waits))}; {did}."
    kind, ranks = "never_entered", free
    if gone and len(gone) == len(free):
        alone = len(gone) > len(waiting)
        kind, ranks = ("went_alone", waiting) if alone else (_how_gone(gone, evidence), gone)
    elif not free:
        kind = "elsewhere"
        ranks = missing if majority_step(waits) == step.number and not explained else ()
    return Finding(
        kind=kind,
        sentence=sentence,
        ranks=ranks,
        others=tuple(rank for rank in (*missing, *waiting) if rank not in ranks),
        step=step.title,
        lines=_lines(evidence, waits, ranks, waiting),
        seconds=round(waited(evidence, ours), 6),
    )


def _how_gone(gone: Sequence[int], evidence: Evidence) -> str:
    return "left_early" if all(evidence.ranks[rank].left for rank in gone) else "failed"


def _what_they_did(ranks: Sequence[int], waits: dict[int, Wait], evidence: Evidence) -> str:
    return listing(together(ranks, lambda rank: what_it_did(evidence, rank, waits)))


def _lines(evidence: Evidence, waits: dict[int, Wait], ranks: Sequence[int], waiting: Sequence[int]) -> tuple[str, ...]:
    """Where ranks were: those that are to blame first."""
    lines = []
    for rank in (*ranks, *waiting):
        facts = evidence.ranks.get(rank)
        place = evidence.place(facts) if facts is not None and not facts.left else None
        calls = evidence.calls(rank)
        if rank in waits:
            lines.append(waits[rank].call.source)
        elif place is not None:
            lines.append(f"{place.file}:{place.line}")
        elif calls:
            lines.append(calls[-1].source)
    return tuple(line for line in dict.fromkeys(lines) if line)


def _ring(cycle: Sequence[int], waits: dict[int, Wait], evidence: Evidence) -> Finding:
    """Ranks that wait for each other in a ring."""
    ours = [waits[rank] for rank in cycle]
    chain = " → ".join(map(str, (*cycle, cycle[0])))
    each = listing(f"rank {wait.rank} in {describe_wait(wait)}" for wait in ours)
    took = format_duration(waited(evidence, ours))
    sentence = (
        f"{capital(name_ranks(cycle))} wait for each other in a ring ({chain}), for {took} now: {each}. {_advice(ours)}"
    )
    return Finding(
        kind="deadlock",
        sentence=sentence,
        others=tuple(sorted(cycle)),
        step=ours[0].step.title,
        lines=_lines(evidence, waits, (), sorted(cycle)),
        seconds=round(waited(evidence, ours), 6),
    )


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
        findings.append(
            Finding(kind="in_flight", sentence=sentence, others=ranks, step=step.title,
                    lines=_lines(evidence, waits, (), ranks), seconds=round(waited(evidence, ours), 6))
        )  # fmt: skip
    return findings


def _no_waits(evidence: Evidence, culprit: int | None) -> list[Finding]:
    """Nobody waited in a call on record: where everybody was."""
    alive = [number for number, rank in evidence.ranks.items() if rank.alive and rank.stack]
    if not alive:
        return []
    calls = {rank: place.call for rank in alive if (place := evidence.stood(evidence.ranks[rank])) is not None}
    did = _what_they_did(alive, {}, evidence)
    lines = _lines(evidence, {}, (), alive)
    if set(calls.values()) == {"init_process_group"}:
        sentence = (
            f"{capital(did)}: the rendezvous waits until as many ranks have come as world_size says, here more than "
            f"the {plural(len(evidence.ranks), 'rank')} that there are, or one that went elsewhere."
        )
        return [Finding(kind="rendezvous", sentence=sentence, others=tuple(alive), lines=lines)]
    inside = tuple(rank for rank in alive if calls.get(rank))
    outside = tuple(rank for rank in alive if rank not in inside)
    if inside and outside:
        return [
            Finding(kind="never_entered", sentence=f"{capital(did)}.", ranks=outside, others=inside,
                    lines=_lines(evidence, {}, outside, inside))
        ]  # fmt: skip
    what = "Nobody waited in a collective or for a message" if outside else "Everybody was in torch.distributed"
    kind, sentence = "own_code" if outside else "waiting", f"{what}: {did}."
    if culprit is None or culprit not in alive or evidence.traced or outside:
        return [Finding(kind=kind, sentence=sentence, others=tuple(alive), lines=lines)]
    sentence += f" Rank {culprit} was not where most others were."
    others = tuple(rank for rank in alive if rank != culprit)
    lines = _lines(evidence, {}, (culprit,), others)
    return [Finding(kind=kind, sentence=sentence, ranks=(culprit,), others=others, lines=lines)]
