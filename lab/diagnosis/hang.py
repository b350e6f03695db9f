"""A run that did not go on: who never came, who waited, and where everybody was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.diagnosis.disagreement import that_stop_a_run
from lab.diagnosis.ends import at_lines, blame, refusal, together, what_it_did, where_it_was
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, Judgement
from lab.diagnosis.messages import find_unmatched
from lab.diagnosis.outside import blows
from lab.diagnosis.peers import lost_a_peer
from lab.diagnosis.rendezvous import explain_rendezvous
from lab.diagnosis.standing import Standing
from lab.diagnosis.strayed import find_strayed
from lab.diagnosis.waits import Wait, describe_wait, find_cycle, find_waits, majority_step, missed_steps, took, waited
from lab.trace.steps import Step
from lab.words import capital, format_duration, listing, name_ranks

NOBODYS_FAULT = frozenset(
    {"deadlock", "mismatch", "dtype", "shape", "reduce_op", "root", "splits", "groups", "unmatched", "rendezvous"}
)
"""Findings that, where they name nobody, say that nobody can be named."""
_BY_CALLS = ("mismatch", "slipped", "dtype", "shape", "root", "unmatched")
"""Findings that tell more of whom they name than where it stood."""

_BRIEF_S, _BRIEF_PART = 1.0, 0.1
"""A wait that is shorter than both, in seconds and in parts of the time limit, is no standstill."""
_ORDER_OF_GROUPS = "Ranks have to enter the collectives of several groups in the same order."


def judge_hang(evidence: Evidence) -> Judgement:
    """Say who was waited for: the stacks tell it, unless the trace knows better."""
    facts, standing = evidence.facts, Standing.of(evidence)
    culprit, error = standing.waited_for(evidence)
    going_on = _still_going_on(evidence, find_waits(evidence)) if evidence.at_hand else ""
    if going_on:
        culprit = None
    outside = blows(facts)
    held = {rank for blow in outside for rank in blow.ranks}
    cause = _cause(evidence) if evidence.at_hand and not outside else None
    if outside:
        culprit, error = next(iter(outside[0].ranks), None), outside[0].what
    # The trace tells more where it blames somebody else than the stacks do, or tells what that one called, or knows
    # that nobody can be blamed.
    better = cause is not None and (
        culprit not in cause.ranks or cause.kind in _BY_CALLS if cause.ranks else cause.kind in NOBODYS_FAULT
    )
    if cause is not None and better:
        culprit = culprit if culprit in cause.ranks else next(iter(cause.ranks), None)
        error = cause.headline
    kind = cause.kind if cause is not None and better else ""
    clauses = [
        *([error] if better else []),
        *(blow.what for blow in outside),
        *together(
            (rank for rank in standing.absent if rank not in held),
            lambda rank: f"was {where_it_was(evidence, evidence.ranks[rank])}",
        ),
        *together(
            (rank for rank in standing.waiting if kind != "never_entered" or rank != culprit),
            lambda rank: f"waited {where_it_was(evidence, evidence.ranks[rank])}",
        ),
        *together(standing.gone, lambda rank: error if rank == culprit and not (better or outside) else "had ended"),
    ]
    if going_on and culprit is None:
        clauses.insert(0, going_on)
    reason = f"no end after {facts.time_given}: {'; '.join(clauses)}"
    blamed = blame(facts.rank(culprit), error, cause=kind) if culprit is not None else None
    if outside and outside[0].link:
        blamed = outside[0].culprit
    return Judgement(verdict="hung", reason=reason, culprit=blamed)


def _cause(evidence: Evidence) -> Finding | None:
    """What the trace says first; None where that is about no step."""
    stopping, other = that_stop_a_run(evidence)
    found = stopping or explain_hang(evidence, stopping) or other
    return found[0] if found and (found[0].step or found[0].kind == "rendezvous") else None


def explain_hang(evidence: Evidence, differing: Sequence[Finding]) -> list[Finding]:
    """What kept the run from going on; ranks that wait after others called different things wait because of that."""
    if any(finding.kind == "rendezvous" for finding in differing):
        return []  # they are not in the same world, so nobody waits for whom it means
    hang = _Hang(evidence, find_waits(evidence))
    waits = hang.waits
    findings = hang.stand_off(differing)
    if not findings and not differing and _still_going_on(evidence, waits):
        return [hang.still_going_on()]
    told = {
        rank
        for finding in findings
        for rank in (*finding.ranks, *finding.others)
        if finding.kind == "deadlock" or waits[rank].step.message
    }
    by_groups = [finding for finding in differing if finding.kind == "groups"]
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


def _still_going_on(evidence: Evidence, waits: Mapping[int, Wait]) -> str:
    """That the time was up before anybody had waited for long for ranks that could still come; else empty."""
    facts, longest_s = evidence.facts, waited(evidence, list(waits.values()))
    if not waits or not facts.timed_out or longest_s >= min(_BRIEF_S, _BRIEF_PART * facts.timeout_s):
        return ""
    if not all(rank.alive for rank in evidence.ranks.values()):
        return ""
    return f"the time was up while the ranks were at work: nobody had waited longer than {format_duration(longest_s)}"


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
        lines = at_lines(wait.call for wait in ours)
        there = took(self.evidence, ours, " {}," if lines else " {}") + lines
        who, whom, did = name_ranks(waiting), name_ranks(missing), self._what_they_did(missing)
        refused = [step.calls[rank] for rank in missing if rank in step.calls]
        failed = refusal(step.title, refused) if len(refused) == len(missing) else ""
        if failed:
            sentence = f"{failed}. {capital(who)} waited there{there}; {did}."
        elif step.message:
            verb = "sent" if ours[0].call.operation.receives else "received"
            what = describe_wait(ours[0]).partition(" at ")[0]
            sentence = f"{who} waited in {what}{there}: {whom} never {verb}. {capital(did)}."
        else:
            sentence = f"{whom} never entered {step.title}. {capital(who)} waited there{there}; {did}."
        sentence += f" {_not_known(unknown)}" if unknown else ""
        kind, ranks = "never_entered", free
        if gone and len(gone) == len(free):
            left = "left_early" if all(ranks_of[rank].left for rank in gone) else "failed"
            kind, ranks = ("went_alone", waiting) if len(gone) > len(waiting) else (left, gone)
        elif not free:
            kind = "elsewhere"
            ranks = missing if majority_step(self.waits) == step.number and not explained else ()
            groups = {self.waits[rank].step.group for rank in missing if not self.waits[rank].step.message}
            sentence += f" {_ORDER_OF_GROUPS}" if groups - {step.group} and not step.message and not explained else ""
        if free and self.evidence.dumped:  # what they did instead is not known
            told = self.evidence.dumped.messages
            sentence += "" if told else f" If {name_ranks(free)} waited for a message, these dumps do not tell it."
            ranks = ranks if told and len(free) <= len(waiting) else ()
        others = [rank for rank in (*missing, *waiting) if rank not in ranks]
        return self._finding(kind, sentence, waiting, ranks, step, others)

    def not_known(self, step: Step, waiting: Sequence[int], unknown: Sequence[int]) -> Finding:
        """A step that ranks waited in, perhaps for ranks that left no dump."""
        lines = at_lines(self.waits[rank].call for rank in waiting)
        sentence = f"{name_ranks(waiting)} waited in {step.title}{lines}. {_not_known(unknown)}"
        return self._finding("not_known", sentence, waiting, step=step)

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
        chain = " → ".join(map(str, (*cycle, cycle[0])))
        each = listing(together(ranks, lambda rank: f"in {describe_wait(self.waits[rank])}"))
        now = took(self.evidence, ours, ", for {} now")
        what = f"{name_ranks(ranks)} wait for each other in a ring ({chain}){now}: {each}."
        return self._finding("deadlock", f"{what} {_advice(ours)}", ranks, step=self.waits[cycle[0]].step)

    def all_there(self, named: set[str]) -> list[Finding]:
        """Steps that everybody entered and that still did not end."""
        findings = []
        for number in dict.fromkeys(wait.step.number for wait in self.waits.values() if not wait.on):
            ours = [wait for wait in self.waits.values() if wait.step.number == number]
            step = ours[0].step
            if step.title in named or (len({call.op for call in step.calls.values()}) > 1 and not step.message):
                continue
            ranks = [wait.rank for wait in ours]
            lines = at_lines(wait.call for wait in ours)
            there = took(self.evidence, ours, "{}," if lines else "{}") + lines
            who = name_ranks(step.calls) if self.evidence.dumped else "everybody"
            sentence = (
                f"{capital(who)} entered {step.title}, and {name_ranks(ranks)} never came out of it"
                f"{f' ({there.strip()})' if there else ''}: the data did not arrive, or there was no time left for it."
            )
            findings.append(self._finding("in_flight", sentence, ranks, step=step))
        return findings

    def still_going_on(self) -> Finding:
        """Ranks that the time limit met at work: whoever a call lacked was about to come, for all that is known."""
        alive = [rank for rank, facts in sorted(self.evidence.ranks.items()) if facts.alive]
        sentence = f"{capital(_still_going_on(self.evidence, self.waits))}. {capital(self._what_they_did(alive))}."
        return self._finding("out_of_time", sentence, alive)

    def no_waits(self) -> list[Finding]:
        """Nobody waited in a call on record: where everybody was."""
        evidence, standing = self.evidence, Standing.of(self.evidence)
        outside = [rank for rank in standing.absent if evidence.ranks[rank].stack]
        alive = sorted([*standing.waiting, *outside])
        if not alive:
            return []
        did = self._what_they_did(alive)
        calls = {place.call for rank in alive if (place := evidence.stood(evidence.ranks[rank])) is not None}
        if calls == {"init_process_group"}:
            found = explain_rendezvous(evidence)
            return [self._finding("rendezvous", f"{did}.", alive)] if found is None else [found]
        if standing.waiting and outside:
            return [self._finding("never_entered", f"{did}.", standing.waiting, outside)]
        if outside:
            return [self._finding("own_code", f"Nobody waited in a collective or for a message: {did}.", alive)]
        odd, _ = standing.waited_for(evidence)
        sentence = f"Everybody was in torch.distributed: {did}."
        if odd not in alive or evidence.trace.recorded:
            return [self._finding("waiting", sentence, alive)]
        sentence += f" Rank {odd} was not where most others were."
        return [self._finding("waiting", sentence, [rank for rank in alive if rank != odd], [odd])]

    def _what_they_did(self, ranks: Sequence[int]) -> str:
        return listing(together(ranks, lambda rank: what_it_did(self.evidence, rank, self.waits)))

    def _finding(
        self,
        kind: str,
        sentence: str,
        waiting: Sequence[int],
        ranks: Sequence[int] = (),
        step: Step | None = None,
        others: Sequence[int] = (),
    ) -> Finding:
        """A finding with the lines where ranks were, and for how long the others had waited."""
        ours = [self.waits[rank] for rank in waiting if rank in self.waits]
        return Finding(
            kind=kind,
            sentence=sentence,
            ranks=tuple(ranks),
            others=tuple(others or waiting),
            step=step.title if step is not None else "",
            lines=tuple(self._line(rank) for rank in (*ranks, *waiting)),
            seconds=round(waited(self.evidence, ours), 6) if ours and not self.evidence.dumped else None,
        )

    def _line(self, rank: int) -> str:
        """The line where a rank was; empty where that is not known."""
        if rank in self.waits:
            return self.waits[rank].call.source
        facts = self.evidence.ranks.get(rank)
        if facts is None or facts.left:
            return self.evidence.last_line(rank)
        place = self.evidence.place(facts) or self.evidence.thread(facts)
        return place.at if place is not None else self.evidence.last_line(rank)


def _not_known(unknown: Sequence[int]) -> str:
    them = "them" if len(unknown) > 1 else "it"
    return f"Whether {name_ranks(unknown)} came to it is not known: there is no dump of {them}."


def _advice(ring: Sequence[Wait]) -> str:
    """What would have kept such a ring from closing."""
    ops = [wait.call.operation for wait in ring]
    if not any(wait.step.message for wait in ring):
        made = {wait.step.group.title: wait.step.group.source for wait in ring if wait.step.group.source}
        lines = listing(f"{title} at {line}" for title, line in made.items())
        return _ORDER_OF_GROUPS + (f" Groups were made here: {lines}." if lines else "")
    if all(op.receives for op in ops):
        return "All of them receive before they send: one has to send first."
    if all(op.sends for op in ops):
        return "All of them send before they receive: one has to receive first."
    return "None of these calls can end before another one does."
