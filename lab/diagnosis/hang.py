"""A run that did not go on: who never came, who waited, and where everybody was; and messages that cannot come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab.diagnosis import ends, wording
from lab.diagnosis import finding as f
from lab.diagnosis.disagreement import due, skipped, that_stop_a_run
from lab.diagnosis.ends import Wait
from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence, Judgement, apply_rules
from lab.diagnosis.finding import Finding, FindingKind, majority
from lab.diagnosis.links import cause_of, culprit_of, find_causes_outside
from lab.trace.model import Call
from lab.trace.steps import Step

_BRIEF_S, _BRIEF_PART = 1.0, 0.1
"""A wait that is shorter than both, in seconds and in parts of the time limit, is no standstill."""
_FEWEST = 3
"""Ranks of which most can do alike."""


def judge_hang(evidence: Evidence) -> Judgement:
    """Say who was waited for: the stacks tell it, unless the trace knows better."""
    facts, standing = evidence.facts, ends.Standing.of(evidence)
    outside, going_on, causes = find_causes_outside(evidence), None, list[Finding]()
    seen = standing.waited_for(evidence)
    if evidence.at_hand:
        hang = _Hang(evidence, ends.find_waits(evidence))
        going_on = hang.still_going_on() if hang.longest_s() is not None else None
        causes = [] if outside else _causes(evidence)
    culprit = seen.ranks[0] if seen is not None and going_on is None else None
    error = wording.render_did(seen.facts) if seen is not None else ""
    # The trace tells more where it blames somebody else than the stacks do, or tells what that one called, or knows
    # that nobody can be blamed.
    first = next(iter(outside or causes), None)
    if first is not None and not outside:
        by_calls = culprit not in first.ranks or "by_calls" in first.kind.properties
        first = first if (by_calls if first.ranks else "blameless" in first.kind.properties) else None
    if first is None:
        findings, heads, cause = [one for one in (going_on, seen) if one is not None][:1], list[str](), ""
    else:
        findings, error, cause = outside or causes, first.headline, cause_of(first) if outside else first.kind.value
        heads = [one.headline for one in findings]
        culprit = culprit if culprit in first.ranks and not outside else next(iter(first.ranks), None)
    if going_on is not None and culprit is None:
        heads.insert(0, going_on.headline)
    held = {rank for one in outside for rank in one.ranks}
    never_came = culprit if cause == FindingKind.NEVER_ENTERED.value else None
    stood = [(rank, "was") for rank in standing.absent if rank not in held]
    stood += [(rank, "waited") for rank in standing.waiting if rank != never_came]
    did = [(one, f"{verb} {wording.render_stood(ends.stood_of(evidence, evidence.ranks[one]))}") for one, verb in stood]
    did += [(rank, error if rank == culprit and not cause else "had ended") for rank in standing.gone]
    reason = wording.hang_reason(facts.time_given, heads, did)
    blamed = ends.blame(facts.rank(culprit), error, cause=cause) if culprit is not None else None
    if outside and outside[0].link:
        blamed = culprit_of(outside[0], evidence)
    return Judgement(verdict="hung", reason=reason, culprit=blamed, findings=tuple(findings))


def _causes(evidence: Evidence) -> list[Finding]:
    """What the trace says first, and what has nothing to do with it; nothing where the first is about no step."""
    stopping, other = that_stop_a_run(evidence)
    hung = explain_hang(evidence, stopping)
    known = stopping or hung or other
    if not known or not (known[0].step or known[0].kind is FindingKind.RENDEZVOUS):
        return []
    causes, involved = known[:1], {*known[0].ranks, *known[0].others}
    for one in (*known[1:], *hung):
        ours = {*one.ranks, *one.others}
        if one.step and "ends" in one.kind.properties and ours.isdisjoint(involved):
            causes, involved = [*causes, one], involved | ours
    return causes


def explain_hang(evidence: Evidence, differing: Sequence[Finding]) -> list[Finding]:
    """What kept the run from going on; ranks that wait after others called different things wait because of that."""
    if any(finding.kind is FindingKind.RENDEZVOUS for finding in differing):
        return []  # they are not in the same world, so nobody waits for whom it means
    hang = _Hang(evidence, ends.find_waits(evidence))
    waits = hang.waits
    findings = hang.stand_off(differing)
    if not findings and not differing and hang.longest_s() is not None:
        return [hang.still_going_on()]
    explained = {
        rank
        for finding in findings
        for rank in (*finding.ranks, *finding.others)
        if finding.kind is FindingKind.DEADLOCK or waits[rank].step.message
    }
    by_groups = [finding for finding in differing if finding.kind is FindingKind.GROUPS]
    over_groups = {rank for finding in by_groups for rank in (*finding.ranks, *finding.others)}
    for step, waiting, missing in ends.missed_steps(waits):
        if not (set(waiting) <= explained or set(missing) <= over_groups):
            findings.append(hang.missed(step, waiting, missing, explained=bool(findings or differing)))
    findings += hang.all_there(named={finding.step for finding in differing})
    return findings or ([] if differing or waits else hang.no_waits())


def explain_stand_off(evidence: Evidence) -> list[Finding]:
    """Why ranks failed of which none did so by itself: they had waited for each other until one gave up."""
    if not all(lost_a_peer(rank) for rank in evidence.facts.ranks if rank.failed):
        return []
    return _Hang(evidence, ends.find_waits(evidence, until_failed=True)).stand_off(())


@dataclass(frozen=True)
class _Hang:
    """Makes the findings on a run that did not go on."""

    evidence: Evidence
    waits: Mapping[int, Wait]

    def longest_s(self) -> float | None:
        """The longest wait, where the time was up before anybody had waited long for ranks that could still come."""
        facts, longest_s = self.evidence.facts, ends.longest_wait_s(self.evidence, self.waits.values())
        if not self.waits or not facts.timed_out or longest_s >= min(_BRIEF_S, _BRIEF_PART * facts.timeout_s):
            return None
        return longest_s if all(rank.alive for rank in self.evidence.ranks.values()) else None

    def missed(self, step: Step, waiting: tuple[int, ...], missing: tuple[int, ...], *, explained: bool) -> Finding:
        """A step that some ranks waited in and others never entered."""
        ranks_of, dumped = self.evidence.ranks, self.evidence.dumped
        unknown = tuple(rank for rank in missing if dumped and rank not in ranks_of)
        missing = tuple(rank for rank in missing if rank not in unknown)
        calls = tuple(self.waits[rank].facts for rank in waiting)
        if not missing:  # perhaps they waited for ranks that left no dump
            facts = f.MissedStep(waits=calls, missing=(), unknown=unknown, **self._common(waiting, step=step))
            return facts.as_finding(FindingKind.NOT_KNOWN)
        free = tuple(rank for rank in missing if rank not in self.waits)
        gone = tuple(rank for rank in free if rank in ranks_of and not ranks_of[rank].alive)
        kind, ranks, several = FindingKind.NEVER_ENTERED, free, False
        if gone and len(gone) == len(free):
            left = FindingKind.LEFT_EARLY if all(ranks_of[rank].left for rank in gone) else FindingKind.FAILED
            kind, ranks = (FindingKind.WENT_ALONE, waiting) if len(gone) > len(waiting) else (left, gone)
        elif not free:
            kind = FindingKind.ELSEWHERE
            ranks = missing if ends.majority_step(self.waits) == step.number and not explained else ()
            groups = {self.waits[rank].step.group for rank in missing if not self.waits[rank].step.message}
            several = bool(groups - {step.group}) and not step.message and not explained
        untold: tuple[int, ...] = ()
        if free and dumped:  # what they did instead is not known
            untold = () if dumped.messages else free
            ranks = ranks if dumped.messages and len(free) <= len(waiting) else ()
        refused = ends.calls_at(step.calls[rank] for rank in missing if rank in step.calls)
        facts = f.MissedStep(
            waits=calls,
            missing=missing,
            unknown=unknown,
            message=step.message,
            receives=self.waits[waiting[0]].call.operation.receives,
            did=self._did(missing),
            refused=refused if len(refused) == len(missing) and all(call.error for call in refused) else (),
            several_groups=several,
            untold_messages=untold,
            **self._common(waiting, ranks, step, [rank for rank in (*missing, *waiting) if rank not in ranks]),
        )
        return facts.as_finding(kind)

    def stand_off(self, differing: Sequence[Finding]) -> list[Finding]:
        """Ranks that wait for each other and for nobody else: for messages that cannot come, or in a ring."""
        waits, cycle = self.waits, ends.find_cycle(self.waits)
        unmatched = [] if differing else self.unmatched()
        strayed = None if differing or unmatched or not cycle else self.strayed(cycle)
        if strayed is not None:
            return [strayed]
        messages = all(waits[rank].step.message for rank in cycle)
        if unmatched or not cycle or not (messages or (ends.majority_step(waits) is None and not differing)):
            return unmatched
        steps = {waits[rank].step.number for rank in cycle}
        return [self.ring(cycle, sorted(rank for rank, wait in waits.items() if wait.step.number in steps))]

    def ring(self, cycle: tuple[int, ...], ranks: Sequence[int]) -> Finding:
        """Ranks that wait for each other in a ring; all who wait in its steps, and of each step one."""
        ours = [self.waits[rank] for rank in ranks]
        collectives = not any(wait.step.message for wait in ours)
        all_of: Literal["collectives", "receives", "sends", "mixed"] = "collectives" if collectives else "mixed"
        if not collectives and all(wait.call.operation.receives for wait in ours):
            all_of = "receives"
        elif not collectives and all(wait.call.operation.sends for wait in ours):
            all_of = "sends"
        made = {wait.step.group.title: wait.step.group for wait in ours if collectives and wait.step.group.source}
        facts = f.Ring(
            cycle=cycle,
            waits=tuple(wait.facts for wait in ours),
            all_of=all_of,
            groups=tuple(f.Side(ranks=one.ranks, what=title, lines=(one.source,)) for title, one in made.items()),
            **self._common(ranks, step=self.waits[cycle[0]].step),
        )
        return facts.as_finding(FindingKind.DEADLOCK)

    def strayed(self, ring: Sequence[int]) -> Finding | None:
        """The only rank of all that wait that left its loop half way, if it is in the ring; None where nobody is.

        The others wait where their loops would have gone. Where several left theirs, they may have agreed on it.
        """
        strayed = {rank: usual for rank, wait in self.waits.items() if (usual := self._left_half_way(wait)) is not None}
        rank, usual = next(iter(strayed.items()), (-1, None))
        if usual is None or len(strayed) > 1 or rank not in ring:
            return None
        step, wait = self.evidence.step(usual), self.waits[rank]
        if step is not None and step.message:
            told = ends.call_facts(usual, step)
        else:  # without its number
            group = "" if step is None or step.group.label == "default" else step.group.title
            told = f.CallFacts(rank=rank, name=usual.op, source=usual.source if step is not None else "", group=group)
        others = [other for other in ring if other != rank]
        common = self._common([rank], [rank], wait.step, others)
        common["lines"] = (wait.call.source, *(self.waits[other].call.source for other in others))
        return f.Strayed(cycle=tuple(ring), wait=wait.facts, usual=told, **common).as_finding(FindingKind.DEADLOCK)

    def _left_half_way(self, wait: Wait) -> Call | None:
        """The call that the loop of a rank went on with a round before, where it now waits in something else."""
        calls = self.evidence.calls(wait.rank)
        place = next(n for n, call in enumerate(calls) if call is wait.call)
        done = [(call.op, f"{call.source} {call.group}") for call in calls[: place + 1]]
        before = due(done[:-1])
        if before is None or (done[before] == done[-1] and calls[before].peer == wait.call.peer):
            return None
        return calls[before]

    def all_there(self, named: set[str]) -> list[Finding]:
        """Steps that everybody entered and that still did not end."""
        findings = []
        steps = {wait.step.number: wait.step for wait in self.waits.values() if not wait.on}
        for step in steps.values():
            if step.title in named or (len({call.op for call in step.calls.values()}) > 1 and not step.message):
                continue
            ours = {rank: wait.call for rank, wait in self.waits.items() if wait.step is step}
            entered = tuple(step.calls) if self.evidence.dumped else None
            sources, common = ends.lines_of(ours.values()), self._common([*ours], step=step)
            findings.append(f.InFlight(entered=entered, sources=sources, **common).as_finding(FindingKind.IN_FLIGHT))
        return findings

    def still_going_on(self) -> Finding:
        """Ranks that the time limit met at work: whoever a call lacked was about to come, for all that is known."""
        alive = [rank for rank, facts in sorted(self.evidence.ranks.items()) if facts.alive]
        return self._activities(FindingKind.OUT_OF_TIME, alive, longest_s=self.longest_s())

    def no_waits(self) -> list[Finding]:
        """Nobody waited in a call on record: where everybody was."""
        evidence, standing = self.evidence, ends.Standing.of(self.evidence)
        outside = [rank for rank in standing.absent if evidence.ranks[rank].stack]
        alive = sorted([*standing.waiting, *outside])
        if not alive:
            return []
        calls = {place.call for rank in alive if (place := evidence.stood(evidence.ranks[rank])) is not None}
        if calls == {"init_process_group"}:
            return apply_rules(evidence, "rendezvous") or [self._activities(FindingKind.RENDEZVOUS, alive)]
        if standing.waiting and outside:
            return [self._activities(FindingKind.NEVER_ENTERED, alive, standing.waiting, outside)]
        if outside:
            return [self._activities(FindingKind.OWN_CODE, alive)]
        seen = standing.waited_for(evidence)
        odd = [rank for rank in seen.ranks if rank in alive and not evidence.trace.recorded] if seen is not None else []
        return [self._activities(FindingKind.WAITING, alive, [rank for rank in alive if rank not in odd], odd)]

    def _activities(
        self,
        kind: FindingKind,
        alive: Sequence[int],
        waiting: Sequence[int] = (),
        ranks: Sequence[int] = (),
        **more: Any,
    ) -> Finding:
        return f.Activities(did=self._did(alive), **more, **self._common(waiting or alive, ranks)).as_finding(kind)

    def _did(self, ranks: Sequence[int]) -> tuple[f.Activity, ...]:
        return ends.activities_of(self.evidence, ranks, self.waits)

    def _waited_s(self, ranks: Sequence[int]) -> float | None:
        return ends.waited_s(self.evidence, [self.waits[rank] for rank in ranks if rank in self.waits])

    def _common(
        self, waiting: Sequence[int], ranks: Sequence[int] = (), step: Step | None = None, others: Sequence[int] = ()
    ) -> dict[str, Any]:
        """The lines where ranks were, and for how long the others had waited."""
        return {
            "ranks": tuple(ranks),
            "others": tuple(others or waiting),
            "step": step.title if step is not None else "",
            "lines": tuple(map(self._line, (*ranks, *waiting))),
            "seconds": self._waited_s(waiting),
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

    # -- messages that cannot come: sends that nobody receives, receives that nobody sends to

    def unmatched(self) -> list[Finding]:
        """Messages that ranks waited in, and that cannot come even if every other rank goes on as it can.

        A message whose other end may still come, because that rank is in its own code or waits for such a one, is none;
        nor is one in a ring of messages only, of which each may come when another one does.
        """
        waits = self.waits
        pending = {rank: wait for rank, wait in sorted(waits.items()) if wait.step.message and wait.on}
        for wait in pending.values():
            unlike = self._neighbour(wait)
            if unlike is not None:
                return [unlike]
        findings, explained = [], set[int]()
        for rank, wait in pending.items():
            peer, sends = wait.on[0] if len(wait.on) == 1 else -1, wait.call.operation.sends
            other = pending.get(peer)
            if rank in explained or peer in explained:
                continue
            back = [one for one in pending if waits[one].on == (rank,) and waits[one].call.operation.sends != sends]
            if len(wait.on) == 1 and peer not in self.evidence.ranks:
                ours: tuple[Wait, ...] = (wait,)
                findings.append(self._unmatched("no_such_rank", ours, (rank,), last_rank=max(self.evidence.ranks)))
            elif other is not None and peer in back:
                ours = (wait, other) if sends else (other, wait)
                findings.append(self._passing_by(ours))
            elif not self._in_mixed_ring(rank):
                continue
            elif (other is not None and self._in_mixed_ring(peer)) or (back and back[0] not in explained):
                ours = (wait, other) if other is not None and self._in_mixed_ring(peer) else (waits[back[0]], wait)
                did = self._did([one for one in ours[1].on if one != ours[0].rank])
                waited_s = ends.waited_s(self.evidence, ours)
                findings.append(self._unmatched("other_peers", ours, did=did, waited_s=waited_s))
            else:
                ours = (wait,)
                findings.append(self._nobody_there(wait))
            explained |= {one.rank for one in ours}
        return findings

    def _in_mixed_ring(self, rank: int) -> bool:
        """Whether a rank waits for itself in the end, and not by messages alone."""
        seen: dict[int, bool] = {}
        todo = [(one, False) for one in self.waits[rank].on]
        while todo:
            one, mixed = todo.pop()
            if one == rank and mixed:
                return True
            if one in self.waits and one != rank and not (one in seen and seen[one] >= mixed):
                seen[one] = mixed
                todo += [(after, mixed or not self.waits[one].step.message) for after in self.waits[one].on]
        return False

    def _passing_by(self, ours: tuple[Wait, ...]) -> Finding:
        """A send and a receive of two ranks that mean each other, and that differ in their tags or groups."""
        differ = len({one.call.group for one in ours}) > 1
        calls = tuple(ends.call_facts(one.call, one.step, one.step.group.title if differ else "") for one in ours)
        return self._unmatched("passing_by", ours, waits=calls, waited_s=ends.waited_s(self.evidence, ours))

    def _nobody_there(self, wait: Wait) -> Finding:
        """A message whose other end waits in something else."""
        wanted = wait.step.source, wait.step.destination  # of which one may be any rank
        before = sum(
            step.state == "completed"
            and step.message
            and all(one in (None, end) for one, end in zip(wanted, (step.source, step.destination), strict=True))
            for step in self.evidence.steps
        )
        most = ends.majority_step(self.waits)
        alone = most is not None and most != wait.step.number
        as_before = before and wait.call.operation.receives  # then who lacks a message may well be right
        ranks: tuple[int, ...] = (wait.rank,) if alone and not as_before else ()
        ours = (wait, *(self.waits[rank] for rank in wait.on if rank in self.waits))
        more: dict[str, Any] = {"did": self._did(wait.on), "before": before}
        left, is_next = self._left_out(wait)
        if left is not None:
            ranks, lines = wait.on, (left.source, *(one.call.source for one in ours))
            more |= {"lines": lines, "left_out": left, "left_next": is_next}
        return self._unmatched("nobody_there", ours, ranks, **more)

    def _left_out(self, wait: Wait) -> tuple[f.CallFacts | None, bool]:
        """The call that the other end of a message left out, and whether its own loop would have come to it next.

        Or else it had been about to when it went on with what comes after it there. None where it left nothing out.
        """
        calls = self.evidence.calls(wait.on[0]) if len(wait.on) == 1 else []
        if calls and calls[-1].state == "unfinished":
            calls = calls[:-1]  # what it did instead
        answers = [c.peer == wait.rank and c.operation.sends == wait.call.operation.receives for c in calls]
        beats = [(call.op, call.source) for call in calls]
        before = due(beats)
        if before is not None and answers[before]:
            return ends.call_facts(calls[before], wait.step), True
        once = [calls[place] for place in skipped(beats) if answers[place]]
        return (ends.call_facts(once[0], wait.step), False) if len(once) == 1 else (None, False)

    def _neighbour(self, wait: Wait) -> Finding | None:
        """A rank that has another neighbour than the others at the same line.

        With three or more ranks: most address the rank at the same distance from their own, and this one does not.
        """
        ranks, wanted = wait.step.group.ranks, (wait.call.op, wait.call.source, wait.call.group)
        size, alike = len(ranks), dict[int, list[Call]]()
        for rank in ranks:
            alike[rank] = [c for c in self.evidence.calls(rank) if (c.op, c.source, c.group) == wanted]
        if size < _FEWEST or wait.call not in alike.get(wait.rank, ()):
            return None
        turn = alike[wait.rank].index(wait.call)
        there = {rank: calls[turn].peer for rank, calls in alike.items() if len(calls) > turn}
        meant = {rank: (peer - rank) % size for rank, peer in there.items() if peer is not None}
        usual, odd = majority(meant)
        if usual is None or odd != (wait.rank,) or len(meant) != size:
            return None
        others = tuple(rank for rank in meant if rank != wait.rank)
        return self._unmatched("neighbour", (wait,), odd, usual_distance=usual, group_size=size, alike=others)

    def _unmatched(
        self,
        how: Literal["neighbour", "no_such_rank", "passing_by", "other_peers", "nobody_there"],
        ours: tuple[Wait, ...],
        ranks: tuple[int, ...] = (),
        **more: Any,
    ) -> Finding:
        common: dict[str, Any] = {
            "waits": tuple(wait.facts for wait in ours),
            "waited_s": ends.waited_s(self.evidence, ours[:1]),
            "others": tuple(wait.rank for wait in ours if wait.rank not in ranks),
            "step": ours[0].step.title,
            "lines": tuple(wait.call.source for wait in ours),
            "seconds": ends.waited_s(self.evidence, ours[:2]),
        }
        return f.UnmatchedMessage(how=how, ranks=ranks, **{**common, **more}).as_finding(FindingKind.UNMATCHED)


def left_by(evidence: Evidence, rank: int) -> int | None:
    """The other end of the message that a rank failed in, if it had ended before that one was over.

    Where it had not even begun, it is only where it called less than most ranks did, and the one that failed as often
    as they: else that one may have called once too often.
    """
    hit = evidence.broken(rank) if evidence.at_hand else None
    if hit is None or not hit[1].message:
        return None
    step = hit[1]
    others = [one for one in (step.source, step.destination) if one is not None and one != rank]
    if len(others) != 1 or others[0] not in evidence.ranks or not evidence.ranks[others[0]].left:
        return None
    calls = {one: len(evidence.calls(one)) for one in evidence.ranks}
    usual, _ = majority(calls)
    called_less = usual is not None and calls[others[0]] < usual == calls[rank]
    return others[0] if others[0] in step.calls or called_less else None
