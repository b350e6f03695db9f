"""A run that did not go on: who never came, who waited, and where everybody was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab.diagnosis import wording
from lab.diagnosis.disagreement import that_stop_a_run
from lab.diagnosis.ends import Standing, activities_of, blame, calls_at, lines_of, stood_of
from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import (
    Activities,
    CallFacts,
    Finding,
    FindingKind,
    InFlight,
    MissedStep,
    Ring,
    Side,
    StoodApart,
)
from lab.diagnosis.judgement import Judgement
from lab.diagnosis.links import blows, cause_of, culprit_of
from lab.diagnosis.messages import find_strayed, find_unmatched
from lab.diagnosis.rendezvous import explain_rendezvous
from lab.diagnosis.waits import Wait, find_cycle, find_waits, majority_step, missed_steps, waited, waited_s
from lab.trace.steps import Step

_BRIEF_S, _BRIEF_PART = 1.0, 0.1
"""A wait that is shorter than both, in seconds and in parts of the time limit, is no standstill."""


def judge_hang(evidence: Evidence) -> Judgement:
    """Say who was waited for: the stacks tell it, unless the trace knows better."""
    facts, standing = evidence.facts, Standing.of(evidence)
    outside, going_on, causes = blows(facts), None, list[Finding]()
    seen = standing.waited_for(evidence)
    culprit = seen.ranks[0] if seen is not None else None
    error = wording.render_stood_apart(seen.facts) if seen and isinstance(seen.facts, StoodApart) else ""
    if evidence.at_hand:
        waits = find_waits(evidence)
        going_on = _Hang(evidence, waits).still_going_on() if _longest_s(evidence, waits) is not None else None
        causes = [] if outside else _causes(evidence)
    if going_on is not None:
        culprit = None
    # The trace tells more where it blames somebody else than the stacks do, or tells what that one called, or knows
    # that nobody can be blamed.
    cause = causes[0] if causes else None
    if cause is not None and cause.ranks:
        better = culprit not in cause.ranks or cause.kind.names_by_calls
    else:
        better = cause is not None and cause.kind.names_nobody_for_sure
    if outside:
        culprit, error, told = next(iter(outside[0].ranks), None), outside[0].headline, outside
    elif cause is not None and better:
        culprit = culprit if culprit in cause.ranks else next(iter(cause.ranks), None)
        error, told = cause.headline, causes
    else:
        told = [one for one in (going_on, seen) if one is not None][:1]
    kind = cause.kind if cause is not None and better else None
    held = {rank for blow in outside for rank in blow.ranks}
    heads = [one.headline for one in told] if outside or better else []
    if going_on is not None and culprit is None:
        heads.insert(0, going_on.headline)
    never_came = culprit if kind is FindingKind.NEVER_ENTERED else None
    reason = wording.hang_reason(
        facts.time_given,
        heads,
        [(rank, stood_of(evidence, evidence.ranks[rank])) for rank in standing.absent if rank not in held],
        [(rank, stood_of(evidence, evidence.ranks[rank])) for rank in standing.waiting if rank != never_came],
        [(rank, error if rank == culprit and not (better or outside) else "had ended") for rank in standing.gone],
    )
    blamed = None
    if culprit is not None:
        cause_word = cause_of(outside[0]) if outside else kind.value if kind is not None else ""
        blamed = blame(facts.rank(culprit), error, cause=cause_word)
    if outside and outside[0].link:
        blamed = culprit_of(outside[0])
    return Judgement(verdict="hung", reason=reason, culprit=blamed, findings=tuple(told))


def _causes(evidence: Evidence) -> list[Finding]:
    """What the trace says first, and what has nothing to do with it; nothing where the first is about no step."""
    stopping, other = that_stop_a_run(evidence)
    found = stopping or explain_hang(evidence, stopping) or other
    if not found or not (found[0].step or found[0].kind is FindingKind.RENDEZVOUS):
        return []
    causes, involved = found[:1], {*found[0].ranks, *found[0].others}
    for one in (*found[1:], *explain_hang(evidence, stopping)):
        ours = {*one.ranks, *one.others}
        if one.step and one.kind.ends_a_run and ours.isdisjoint(involved):
            causes, involved = [*causes, one], involved | ours
    return causes


def explain_hang(evidence: Evidence, differing: Sequence[Finding]) -> list[Finding]:
    """What kept the run from going on; ranks that wait after others called different things wait because of that."""
    if any(finding.kind is FindingKind.RENDEZVOUS for finding in differing):
        return []  # they are not in the same world, so nobody waits for whom it means
    hang = _Hang(evidence, find_waits(evidence))
    waits = hang.waits
    findings = hang.stand_off(differing)
    if not findings and not differing and _longest_s(evidence, waits) is not None:
        return [hang.still_going_on()]
    told = {
        rank
        for finding in findings
        for rank in (*finding.ranks, *finding.others)
        if finding.kind is FindingKind.DEADLOCK or waits[rank].step.message
    }
    by_groups = [finding for finding in differing if finding.kind is FindingKind.GROUPS]
    over_groups = {rank for finding in by_groups for rank in (*finding.ranks, *finding.others)}
    for step, waiting, missing in missed_steps(waits):
        if not (set(waiting) <= told or set(missing) <= over_groups):
            findings.append(hang.missed(step, waiting, missing, explained=bool(findings or differing)))
    findings += hang.all_there(named={finding.step for finding in differing})
    return findings or ([] if differing or waits else hang.no_waits())


def explain_stand_off(evidence: Evidence) -> list[Finding]:
    """Why ranks failed of which none did so by itself: they had waited for each other until one gave up."""
    if not all(lost_a_peer(rank) for rank in evidence.facts.ranks if rank.failed):
        return []
    return _Hang(evidence, find_waits(evidence, until_failed=True)).stand_off(())


def _longest_s(evidence: Evidence, waits: Mapping[int, Wait]) -> float | None:
    """The longest wait, where the time was up before anybody had waited for long for ranks that could still come."""
    facts, longest_s = evidence.facts, waited(evidence, list(waits.values()))
    if not waits or not facts.timed_out or longest_s >= min(_BRIEF_S, _BRIEF_PART * facts.timeout_s):
        return None
    return longest_s if all(rank.alive for rank in evidence.ranks.values()) else None


@dataclass(frozen=True)
class _Hang:
    """Makes the findings on a run that did not go on."""

    evidence: Evidence
    waits: dict[int, Wait]

    def missed(self, step: Step, waiting: tuple[int, ...], missing: tuple[int, ...], *, explained: bool) -> Finding:
        """A step that some ranks waited in and others never entered."""
        ranks_of, ours = self.evidence.ranks, [self.waits[rank] for rank in waiting]
        unknown = tuple(rank for rank in missing if self.evidence.dumped and rank not in ranks_of)
        missing = tuple(rank for rank in missing if rank not in unknown)
        if not missing:
            return self.not_known(step, waiting, unknown)
        free = tuple(rank for rank in missing if rank not in self.waits)
        gone = tuple(rank for rank in free if rank in ranks_of and not ranks_of[rank].alive)
        kind, ranks, several = FindingKind.NEVER_ENTERED, free, False
        if gone and len(gone) == len(free):
            left = FindingKind.LEFT_EARLY if all(ranks_of[rank].left for rank in gone) else FindingKind.FAILED
            kind, ranks = (FindingKind.WENT_ALONE, waiting) if len(gone) > len(waiting) else (left, gone)
        elif not free:
            kind = FindingKind.ELSEWHERE
            ranks = missing if majority_step(self.waits) == step.number and not explained else ()
            groups = {self.waits[rank].step.group for rank in missing if not self.waits[rank].step.message}
            several = bool(groups - {step.group}) and not step.message and not explained
        untold: tuple[int, ...] = ()
        if free and self.evidence.dumped:  # what they did instead is not known
            told = self.evidence.dumped.messages
            untold = () if told else free
            ranks = ranks if told and len(free) <= len(waiting) else ()
        refused = calls_at(step.calls[rank] for rank in missing if rank in step.calls)
        facts = MissedStep(
            waits=self._calls(waiting),
            missing=missing,
            unknown=unknown,
            message=step.message,
            receives=ours[0].call.operation.receives,
            did=activities_of(self.evidence, missing, self.waits),
            refused=refused if len(refused) == len(missing) and all(call.error for call in refused) else (),
            several_groups=several,
            untold_messages=untold,
            **self._common(waiting, ranks, step, [rank for rank in (*missing, *waiting) if rank not in ranks]),
        )
        return Finding(kind=kind, facts=facts)

    def not_known(self, step: Step, waiting: Sequence[int], unknown: Sequence[int]) -> Finding:
        """A step that ranks waited in, perhaps for ranks that left no dump."""
        common = self._common(waiting, step=step)
        facts = MissedStep(waits=self._calls(waiting), missing=(), unknown=tuple(unknown), **common)
        return Finding(kind=FindingKind.NOT_KNOWN, facts=facts)

    def stand_off(self, differing: Sequence[Finding]) -> list[Finding]:
        """Ranks that wait for each other and for nobody else: for messages that cannot come, or in a ring."""
        waits, cycle = self.waits, find_cycle(self.waits)
        unmatched = [] if differing else find_unmatched(self.evidence, waits)
        strayed = None if differing or unmatched else find_strayed(self.evidence, waits, cycle)
        if strayed is not None:
            return [strayed]
        messages = all(waits[rank].step.message for rank in cycle)
        if unmatched or not cycle or not (messages or (majority_step(waits) is None and not differing)):
            return unmatched
        steps = {waits[rank].step.number for rank in cycle}
        return [self.ring(cycle, sorted(rank for rank, wait in waits.items() if wait.step.number in steps))]

    def ring(self, cycle: Sequence[int], ranks: Sequence[int]) -> Finding:
        """Ranks that wait for each other in a ring; all who wait in its steps, and of each step one."""
        ours = [self.waits[rank] for rank in ranks]
        ops, made = [wait.call.operation for wait in ours], {wait.step.group.title: wait.step.group for wait in ours}
        collectives = not any(wait.step.message for wait in ours)
        all_of: Literal["collectives", "receives", "sends", "mixed"] = "collectives" if collectives else "mixed"
        if not collectives and all(op.receives for op in ops):
            all_of = "receives"
        elif not collectives and all(op.sends for op in ops):
            all_of = "sends"
        groups = [Side(ranks=one.ranks, what=title, lines=(one.source,)) for title, one in made.items() if one.source]
        facts = Ring(
            cycle=tuple(cycle),
            waits=self._calls(ranks),
            all_of=all_of,
            groups=tuple(groups) if collectives else (),
            **self._common(ranks, step=self.waits[cycle[0]].step),
        )
        return Finding(kind=FindingKind.DEADLOCK, facts=facts)

    def all_there(self, named: set[str]) -> list[Finding]:
        """Steps that everybody entered and that still did not end."""
        findings = []
        for number in dict.fromkeys(wait.step.number for wait in self.waits.values() if not wait.on):
            ours = [wait for wait in self.waits.values() if wait.step.number == number]
            step = ours[0].step
            if step.title in named or (len({call.op for call in step.calls.values()}) > 1 and not step.message):
                continue
            entered = tuple(step.calls) if self.evidence.dumped else None
            sources = lines_of(wait.call for wait in ours)
            common = self._common([wait.rank for wait in ours], step=step)
            facts = InFlight(entered=entered, sources=sources, **common)
            findings.append(Finding(kind=FindingKind.IN_FLIGHT, facts=facts))
        return findings

    def still_going_on(self) -> Finding:
        """Ranks that the time limit met at work: whoever a call lacked was about to come, for all that is known."""
        alive = [rank for rank, facts in sorted(self.evidence.ranks.items()) if facts.alive]
        return self._activities(FindingKind.OUT_OF_TIME, alive, longest_s=_longest_s(self.evidence, self.waits))

    def no_waits(self) -> list[Finding]:
        """Nobody waited in a call on record: where everybody was."""
        evidence, standing = self.evidence, Standing.of(self.evidence)
        outside = [rank for rank in standing.absent if evidence.ranks[rank].stack]
        alive = sorted([*standing.waiting, *outside])
        if not alive:
            return []
        calls = {place.call for rank in alive if (place := evidence.stood(evidence.ranks[rank])) is not None}
        if calls == {"init_process_group"}:
            return [explain_rendezvous(evidence) or self._activities(FindingKind.RENDEZVOUS, alive)]
        if standing.waiting and outside:
            return [self._activities(FindingKind.NEVER_ENTERED, alive, standing.waiting, outside)]
        if outside:
            return [self._activities(FindingKind.OWN_CODE, alive)]
        seen = standing.waited_for(evidence)
        odd = seen.ranks[0] if seen is not None else None
        if odd is None or odd not in alive or evidence.trace.recorded:
            return [self._activities(FindingKind.WAITING, alive)]
        return [self._activities(FindingKind.WAITING, alive, [rank for rank in alive if rank != odd], [odd])]

    def _activities(
        self,
        kind: FindingKind,
        alive: Sequence[int],
        waiting: Sequence[int] = (),
        ranks: Sequence[int] = (),
        longest_s: float | None = None,
    ) -> Finding:
        did = activities_of(self.evidence, alive, self.waits)
        facts = Activities(did=did, longest_s=longest_s, **self._common(waiting or alive, ranks))
        return Finding(kind=kind, facts=facts)

    def _calls(self, ranks: Sequence[int]) -> tuple[CallFacts, ...]:
        return tuple(self.waits[rank].facts for rank in ranks)

    def _common(
        self, waiting: Sequence[int], ranks: Sequence[int] = (), step: Step | None = None, others: Sequence[int] = ()
    ) -> dict[str, Any]:
        """The lines where ranks were, and for how long the others had waited."""
        return {
            "ranks": tuple(ranks),
            "others": tuple(others or waiting),
            "step": step.title if step is not None else "",
            "lines": tuple(self._line(rank) for rank in (*ranks, *waiting)),
            "seconds": waited_s(self.evidence, [self.waits[rank] for rank in waiting if rank in self.waits]),
        }

    def _line(self, rank: int) -> str:
        """The line where a rank was; empty where that is not known."""
        if rank in self.waits:
            return self.waits[rank].call.source
        facts = self.evidence.ranks.get(rank)
        if facts is None or facts.left:
            return self.evidence.last_line(rank)
        place = self.evidence.place(facts) or self.evidence.thread(facts)
        return place.at if place is not None else self.evidence.last_line(rank)
