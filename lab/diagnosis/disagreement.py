"""Findings about steps in which ranks did not do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.diagnosis.ends import at_lines
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.groups import find_group_faults
from lab.diagnosis.rendezvous import find_split_worlds
from lab.diagnosis.rhythm import beats, out_of_step
from lab.diagnosis.slips import find_slips
from lab.diagnosis.wrongs import what_is_wrong, wrong_results
from lab.trace.clashes import Clash, find_clashes
from lab.trace.steps import Step
from lab.words import capital, format_duration, listing, name_ranks, plural

_VERBS = {"root": "named", "reduce_op": "reduced by"}
"""The verb for what a rank differs in; tensors are brought."""
_MOST_MISFITS = 3
"""So many of them are told."""


def disagreements(evidence: Evidence) -> list[Finding]:
    """What ranks called differently, each kind at each place once; steps that never ended come first."""
    clashes = find_clashes(evidence.steps)
    findings: dict[tuple[str, tuple[str, ...]], list[tuple[Clash, Finding]]] = {}
    for clash in clashes:
        finding = _mismatch(clash, evidence) if clash.kind == "mismatch" else _unequal(clash)
        findings.setdefault((finding.kind, finding.lines), []).append((clash, finding))
    groups = sorted(findings.values(), key=lambda group: all(c.step.state == "completed" for c, _ in group))
    clashing = [_waiting(group[0][1], len(group), evidence) for group in groups]
    slips, turns = find_slips(evidence), {step.title: step.number for step in evidence.steps}
    first = min((turns[finding.step] for finding in clashing if finding.kind == "mismatch"), default=0)
    before = [slip for slip in slips if turns.get(slip.step, first) < first]
    return [*before, *clashing, *(slip for slip in slips if slip not in before)]


def that_stop_a_run(evidence: Evidence) -> tuple[list[Finding], list[Finding]]:
    """What ranks did differently that can keep a run from going on, faults of groups first; and all other."""
    found = disagreements(evidence)
    unended = {step.title for step in evidence.steps if step.state != "completed"}
    stopping = [finding for finding in found if finding.kind in ("mismatch", "slipped") or finding.step in unended]
    other = [finding for finding in found if finding not in stopping]
    return [*(find_split_worlds(evidence) or find_group_faults(evidence)), *stopping], other


def differed_before(evidence: Evidence, rank: int) -> str:
    """What ranks called differently in a step that a rank came out of, as a clause behind how it then failed."""
    steps = {step.title for step in evidence.steps if rank in step.calls} if evidence.at_hand else ()
    found = next((one for one in that_stop_a_run(evidence)[1] if one.step in steps), None) if steps else None
    return f"; before that, {found.headline}" if found is not None else ""


def _waiting(finding: Finding, times: int, evidence: Evidence) -> Finding:
    """The finding with how often it came, and how long ranks had been waiting in its step when the run was over."""
    if times > 1:
        again = f"So it was in {plural(times - 1, 'other step')}, too."
        finding = replace(finding, sentence=f"{finding.sentence} {again}")
    calls = [call for step in evidence.steps if step.title == finding.step for call in step.calls.values()]
    since = [call.begin for call in calls if call.state == "unfinished" and _stopped(evidence, call.rank)]
    if not since:
        return finding
    took = max(0.0, evidence.over - min(since))
    sentence = f"{finding.sentence} It went no further for {format_duration(took)}."
    return replace(finding, sentence=sentence, seconds=round(took, 6))


def _stopped(evidence: Evidence, rank: int) -> bool:
    return rank in evidence.ranks and evidence.ranks[rank].stopped


def _mismatch(clash: Clash, evidence: Evidence) -> Finding:
    """Ranks that called different operations where all had to call the same."""
    step = clash.step
    odd = clash.odd or _by_rhythm(step, evidence)
    others = tuple(rank for rank in sorted(step.calls) if rank not in odd)
    number = f"call #{step.seq}" + ("" if step.group.label == "default" else f" of {step.group.title}")
    if odd:
        sentence = f"{_called(step, odd)} where {_called(step, others)} ({number})."
        if not clash.odd:
            sentence += f" Until then both did the same, over and over; {name_ranks(odd)} left that rhythm."
        return _finding("mismatch", sentence, clash, odd, others)
    sides = "; ".join(_called(step, ranks) for _, ranks in clash.sides)
    sentence = f"In {number} ranks called different operations: {sides}. No majority tells which is wrong."
    return _finding("mismatch", sentence, clash, (), others)


def _by_rhythm(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Of two ranks, the one that did not do what both had been doing."""
    if len(step.group.ranks) != 2 or len(step.calls) != 2:
        return ()
    one, other = sorted(step.calls)
    name = step.group.name
    who = out_of_step(beats(evidence.calls(one), name), beats(evidence.calls(other), name))
    return () if who is None else ((one, other)[who],)


def _called(step: Step, ranks: Sequence[int]) -> str:
    """`rank 1 called broadcast at train.py:22`, for ranks that may have called different things."""
    by_op: dict[str, list[int]] = {}
    for rank in ranks:
        by_op.setdefault(step.calls[rank].op, []).append(rank)
    parts = []
    for op, ours in by_op.items():
        parts.append(f"{name_ranks(ours)} called {op}{at_lines(step.calls[rank] for rank in ours)}")
    return listing(parts)


def _unequal(clash: Clash) -> Finding:
    """Ranks that called the same operation with arguments that do not fit together."""
    step, odd = clash.step, clash.odd
    others = tuple(rank for rank in sorted(step.calls) if rank not in odd)
    verb = _VERBS.get(clash.kind, "brought")
    sides = [f"{name_ranks(ranks)} {verb} {what}" for what, ranks in clash.sides]
    if clash.misfits:
        sentence = f"In {step.title} {_misfits(clash)}{_at(step, odd or tuple(sorted(step.calls)))}."
    elif odd:
        sentence = f"In {step.title} {listing(sides[1:])}, where {sides[0]}{_at(step, odd)}."
    else:
        sentence = f"In {step.title} ranks do not agree: {'; '.join(sides)}{_at(step, tuple(sorted(step.calls)))}."
    wrongs = wrong_results(step) if clash.comparable else []
    if wrongs:
        ranks = name_ranks([wrong.call.rank for wrong in wrongs])
        sentence += f" {capital(ranks)} came out of it with wrong values: {what_is_wrong(wrongs[0])}."
    return _finding(clash.kind, sentence, clash, odd, others)


def _misfits(clash: Clash) -> str:
    """`rank 0 gives rank 1 2 rows, where that one has room for 1`, for the first misfits of splits."""
    told = "; ".join(
        f"rank {one.giver} gives {f'rank {one.taker}' if one.taker != one.giver else 'itself'} "
        f"{plural(one.rows, 'row')}, where {'that one' if one.taker != one.giver else 'it'} has room for {one.room}"
        for one in clash.misfits[:_MOST_MISFITS]
    )
    more = len(clash.misfits) - _MOST_MISFITS
    return told + (f"; so it is between {plural(more, 'more pair')}" if more > 0 else "")


def _at(step: Step, ranks: Sequence[int]) -> str:
    lines = listing(step.calls[rank].source for rank in ranks)
    return f" ({lines})" if lines else ""


def _finding(kind: str, sentence: str, clash: Clash, odd: tuple[int, ...], others: tuple[int, ...]) -> Finding:
    step = clash.step
    lines = tuple(step.calls[rank].source for rank in (*odd, *others))
    return Finding(kind=kind, sentence=sentence, ranks=odd, others=others, step=step.title, lines=lines)
