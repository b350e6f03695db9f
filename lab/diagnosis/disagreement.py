"""Findings about steps in which ranks did not do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lab.diagnosis.ends import lines_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, Misfit, Mismatch, Side, Unequal
from lab.diagnosis.groups import find_group_faults
from lab.diagnosis.rendezvous import find_split_worlds
from lab.diagnosis.rhythm import beats, find_slips, out_of_step
from lab.diagnosis.values import wrong_element, wrong_results
from lab.trace.clashes import Clash, find_clashes
from lab.trace.steps import Step


def disagreements(evidence: Evidence) -> list[Finding]:
    """What ranks called differently, each kind at each place once; steps that never ended come first."""
    clashes = find_clashes(evidence.steps)
    findings: dict[tuple[FindingKind, tuple[str, ...]], list[tuple[Clash, Finding]]] = {}
    for clash in clashes:
        finding = _mismatch(clash, evidence) if clash.kind == FindingKind.MISMATCH.value else _unequal(clash)
        findings.setdefault((finding.kind, finding.lines), []).append((clash, finding))
    groups = sorted(findings.values(), key=lambda group: all(c.step.state == "completed" for c, _ in group))
    clashing = [_waiting(group[0][1], len(group), evidence) for group in groups]
    slips, turns = find_slips(evidence), {step.title: step.number for step in evidence.steps}
    first = min((turns[finding.step] for finding in clashing if finding.kind is FindingKind.MISMATCH), default=0)
    before = [slip for slip in slips if turns.get(slip.step, first) < first]
    return [*before, *clashing, *(slip for slip in slips if slip not in before)]


def that_stop_a_run(evidence: Evidence) -> tuple[list[Finding], list[Finding]]:
    """What ranks did differently that can keep a run from going on, faults of groups first; and all other."""
    found = disagreements(evidence)
    unended = {step.title for step in evidence.steps if step.state != "completed"}
    stopping = [
        finding
        for finding in found
        if finding.kind in (FindingKind.MISMATCH, FindingKind.SLIPPED) or finding.step in unended
    ]
    other = [finding for finding in found if finding not in stopping]
    return [*(find_split_worlds(evidence) or find_group_faults(evidence)), *stopping], other


def differed_before(evidence: Evidence, rank: int) -> Finding | None:
    """What ranks called differently in a step that a rank came out of before it failed."""
    steps = {step.title for step in evidence.steps if rank in step.calls} if evidence.at_hand else ()
    return next((one for one in that_stop_a_run(evidence)[1] if one.step in steps), None) if steps else None


def _waiting(finding: Finding, times: int, evidence: Evidence) -> Finding:
    """The finding with how often it came, and how long ranks had been waiting in its step when the run was over."""
    facts = finding.facts
    assert isinstance(facts, (Mismatch, Unequal))
    calls = [call for step in evidence.steps if step.title == finding.step for call in step.calls.values()]
    since = [call.begin for call in calls if call.state == "unfinished" and _stopped(evidence, call.rank)]
    took = round(max(0.0, evidence.over - min(since)), 6) if since else None
    return replace(finding, facts=replace(facts, again=times - 1, stuck_s=took, seconds=took))


def _stopped(evidence: Evidence, rank: int) -> bool:
    return rank in evidence.ranks and evidence.ranks[rank].stopped


def _mismatch(clash: Clash, evidence: Evidence) -> Finding:
    """Ranks that called different operations where all had to call the same."""
    step = clash.step
    odd = clash.odd or _by_rhythm(step, evidence)
    others = tuple(rank for rank in sorted(step.calls) if rank not in odd)
    sides = tuple(side for _, ranks in clash.sides for side in _called(step, ranks))
    facts = Mismatch(
        number=step.seq,
        group="" if step.group.label == "default" else step.group.title,
        odd_sides=_called(step, odd),
        sides=_called(step, others) if odd else sides,
        by_rhythm=bool(odd) and not clash.odd,
        **_common(clash, odd, others),
    )
    return Finding(kind=FindingKind.MISMATCH, facts=facts)


def _by_rhythm(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Of two ranks, the one that did not do what both had been doing."""
    if len(step.group.ranks) != 2 or len(step.calls) != 2:
        return ()
    one, other = sorted(step.calls)
    name = step.group.name
    who = out_of_step(beats(evidence.calls(one), name), beats(evidence.calls(other), name))
    return () if who is None else ((one, other)[who],)


def _called(step: Step, ranks: Sequence[int]) -> tuple[Side, ...]:
    """What ranks called, that may have called different things."""
    by_op: dict[str, list[int]] = {}
    for rank in ranks:
        by_op.setdefault(step.calls[rank].op, []).append(rank)
    return tuple(
        Side(ranks=tuple(ours), what=op, lines=lines_of(step.calls[rank] for rank in ours))
        for op, ours in by_op.items()
    )


def _unequal(clash: Clash) -> Finding:
    """Ranks that called the same operation with arguments that do not fit together."""
    step, odd = clash.step, clash.odd
    others = tuple(rank for rank in sorted(step.calls) if rank not in odd)
    wrongs = wrong_results(step) if clash.comparable else []
    facts = Unequal(
        sides=tuple(Side(ranks=tuple(ranks), what=what) for what, ranks in clash.sides),
        misfits=tuple(Misfit(giver=one.giver, taker=one.taker, rows=one.rows, room=one.room) for one in clash.misfits),
        at=lines_of(step.calls[rank] for rank in odd or sorted(step.calls)),
        wrong=wrong_element(wrongs[0]) if wrongs else None,
        wrong_ranks=tuple(wrong.call.rank for wrong in wrongs),
        **_common(clash, odd, others),
    )
    return Finding(kind=FindingKind(clash.kind), facts=facts)


def _common(clash: Clash, odd: tuple[int, ...], others: tuple[int, ...]) -> dict[str, Any]:
    step = clash.step
    lines = tuple(step.calls[rank].source for rank in (*odd, *others))
    return {"ranks": odd, "others": others, "step": step.title, "lines": lines}
