"""Explain a run that hung: which ranks never entered a step, which waited, and where all ranks were."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Literal

from lab.diagnosis import ends, wording
from lab.diagnosis import finding as f
from lab.diagnosis.ends import find_external_causes
from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence, Judgement, apply_rules
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import Finding, FindingKind
from lab.diagnosis.stacks import is_communicating, is_importing, is_leaving
from lab.feature import find_hook
from lab.trace.steps import Step
from lab.words import format_duration, group_pairs

_BRIEF_S, _BRIEF_PART = 1.0, 0.1
"""A wait shorter than both is no standstill: in seconds, and as a part of the time limit."""
_MEETINGS = ("init_process_group", "init_device_mesh")
_FEWEST_RANKS = 3
"""This many ranks have a majority."""
_FEWEST_STEPS, _RECENT_STEPS = 3, 10
"""Completed steps, or prints, that show progress, and how many of the last ones show the pace."""


def judge_hang(evidence: Evidence, after: str = "") -> Judgement:
    """Return who the others waited for: by the stacks, unless the trace shows more.

    Args:
        evidence: of the run.
        after: how the reason begins; empty: with the time limit.
    """
    facts, standing = evidence.facts, ends.Standing.of(evidence)
    outside, going_on, causes = find_external_causes(evidence), None, list[Finding]()
    blocking = standing.waited_for(evidence)
    if evidence.trace.recorded:
        hang = _Hang(evidence, ends.find_waits(evidence))
        going_on = hang.still_going_on() if hang.longest_s() is not None else None
        causes = [] if outside else _causes(evidence)
        at_work = not (outside or causes) and (hang.longest_s() is not None or not hang.waits)
        if at_work and (progress := find_progress(evidence)) is not None:
            reason = f"{after}: still progressing {progress.how_far}" if after else progress.headline
            return Judgement(verdict="timeout", reason=reason, findings=(progress,))
    if not outside and (importing := _find_imports(evidence, causes)) is not None:
        reason = wording.hang_reason(after or facts.how_it_ended, [importing.headline], [])
        return Judgement(verdict="timeout", reason=reason, findings=(importing,))
    if not (outside or after) and (working := _explain_work(evidence, standing, causes)) is not None:
        reason = f"timed out after {facts.time_limit_text}: {working.headline}"
        return Judgement(verdict="timeout", reason=reason, findings=(working,))
    culprit = blocking.ranks[0] if blocking is not None and going_on is None else None
    error = blocking.what_it_did() if blocking is not None else ""
    # Prefer the trace if it blames another rank than the stacks, if it shows the call of that rank, or if it shows
    # that no rank can be blamed.
    if (first := next(iter(outside or causes), None)) is not None and not outside:
        by_calls = culprit not in first.ranks or "by_calls" in first.kind.properties
        no_blame = first.kind.properties & {"blameless", "absence"} or getattr(first, "in_other_groups", False)
        first = first if (by_calls if first.ranks else no_blame) else None
    if first is None:
        findings, heads, cause = [one for one in (going_on, blocking) if one is not None][:1], list[str](), ""
    else:
        findings, error, cause = outside or causes, first.headline, first.cause
        heads = [one.headline for one in findings]
        culprit = culprit if culprit in first.ranks and not outside else next(iter(first.ranks), None)
    if going_on is not None and culprit is None:
        heads.insert(0, going_on.headline)
    held = {rank for one in outside for rank in one.ranks}
    stood = [(rank, "was") for rank in standing.absent if rank not in held]
    stood += [(rank, "waited") for rank in standing.waiting]
    did = [(one, f"{verb} {wording.render_stood(ends.stood_of(evidence, evidence.ranks[one]))}") for one, verb in stood]
    did += [(rank, error if rank == culprit and not cause else "had ended") for rank in standing.gone]
    if first is not None and not outside and wording.names_line(heads):
        did = []
    reason = wording.hang_reason(after or facts.how_it_ended, heads, did)
    blamed = ends.make_culprit(facts.rank(culprit), error, cause=cause) if culprit is not None else None
    if outside and outside[0].link:
        blamed = ends.culprit_by(outside[0], evidence)
    return Judgement(verdict="hung", reason=reason, culprit=blamed, findings=tuple(findings))


def find_progress(evidence: Evidence) -> wording.Progress | None:
    """Return how far the ranks got, if each of them completed one step after the other until the time was up."""
    traces = evidence.trace.ranks
    phases = ((one.rank, one.end) for trace in traces.values() for one in trace.phases if one.name == "step")
    calls = ((rank, one.end) for rank in evidence.ranks for one in evidence.calls(rank))
    done_by: dict[Literal["step", "call"], Iterable[tuple[int, float | None]]] = {"step": phases, "call": calls}
    for what, done in done_by.items():
        completed = group_pairs((rank, end) for rank, end in done if end is not None)
        if min((len(completed.get(rank, ())) for rank in evidence.ranks), default=0) < _FEWEST_STEPS:
            continue
        before = {rank: traces[rank].skipped_steps if what == "step" else traces[rank].skipped for rank in completed}
        fewest = min(before[rank] + len(completed[rank]) for rank in evidence.ranks)
        if not (gaps_s := _recent_gaps_s([completed[rank] for rank in evidence.ranks], evidence.end_s, evidence)):
            return None
        facts, per_s = evidence.facts, round(1 / (fmean(gaps_s) or 1.0), 3)
        took = facts.time_limit_text if facts.timed_out else format_duration(facts.duration_s or evidence.end_s)
        return wording.Progress(what=what, count=fewest, per_s=per_s, after=took)
    return None


def _recent_gaps_s(times: Sequence[Iterable[float]], end_s: float, evidence: Evidence) -> list[float]:
    """Return the seconds between the last events of each rank; nothing if a rank has kept still for too long since."""
    lately = [sorted(of_rank)[-_RECENT_STEPS:] for of_rank in times]
    gaps_s = [after - before for of_rank in lately for before, after in pairwise(of_rank)]
    silent_s = max(end_s - of_rank[-1] for of_rank in lately)
    brief_s = min(_BRIEF_S, _BRIEF_PART * evidence.facts.timeout_s)
    return gaps_s if silent_s <= max(2 * median(gaps_s), brief_s) else []


def find_working(evidence: Evidence, ranks: Iterable[int]) -> dict[int, Literal["computing", "printing"]]:
    """Return which of these ranks, all in their own code, are at work: they compute, or keep printing."""
    working: dict[int, Literal["computing", "printing"]] = {}
    for facts in (evidence.ranks[rank] for rank in ranks):
        if is_leaving(facts.stack) or facts.threads:  # one of its threads failed
            continue
        called = max((call.end or 0.0 for call in evidence.calls(facts.rank)), default=0.0) + evidence.trace.origin
        printed = [time for time in evidence.printed_s.get(facts.rank, ()) if time >= called]
        if facts.load >= ends.COMPUTES_FROM and not facts.halted:
            working[facts.rank] = "computing"
        elif len(printed) >= _FEWEST_STEPS and _recent_gaps_s([printed], facts.stack_time or 0.0, evidence):
            working[facts.rank] = "printing"
    return working


def _explain_work(evidence: Evidence, standing: ends.Standing, causes: Sequence[Finding]) -> Finding | None:
    """Return which ranks were still at work, if that is all that the others waited for."""
    waits = ends.find_waits(evidence)
    absent = [one for one in standing.absent if one not in waits or evidence.ranks[one].load >= ends.COMPUTES_FROM]
    if standing.gone or not absent or not evidence.facts.timed_out:
        return None
    working = find_working(evidence, absent)
    blamed = {rank for one in causes for rank in one.ranks}
    absences = all(one.kind is FindingKind.NEVER_ENTERED for one in causes)
    if working.keys() != {*absent} or not absences or not blamed <= working.keys():
        return None
    did, by = _Hang(evidence, {}).did(absent), tuple(dict.fromkeys(working.values()))
    lines = tuple(one.stood.location.at for one in did if one.stood and one.stood.location)
    return wording.Activities(kind=FindingKind.OUT_OF_TIME, did=did, by=by, others=(*evidence.ranks,), lines=lines)


def _find_imports(evidence: Evidence, causes: Sequence[Finding]) -> Finding | None:
    """Return which ranks still imported modules, if they are all that the others waited for."""
    if not evidence.facts.timed_out or any(rank.failed or rank.left for rank in evidence.facts.ranks):
        return None
    importing = tuple(rank for rank, facts in sorted(evidence.ranks.items()) if is_importing(facts.stack))
    waiting = [rank for rank, facts in evidence.ranks.items() if is_communicating(facts.stack)]
    blamed = {rank for one in causes for rank in one.ranks}
    if not importing or not evidence.ranks.keys() <= {*importing, *waiting} or not blamed <= {*importing}:
        return None
    did = _Hang(evidence, {}).did(importing)
    return wording.Activities(kind=FindingKind.OUT_OF_TIME, did=did, importing=importing, others=importing)


def _causes(evidence: Evidence) -> list[Finding]:
    """Return the trace's first cause and independent causes; nothing if the first is about no step."""
    stopping, other = split_disagreements(evidence)
    hung = explain_hang(evidence, stopping)
    known = stopping or hung or other
    if not known or not (known[0].step or known[0].kind is FindingKind.RENDEZVOUS):
        return []
    return [known[0], *independent_of(known[0], (*known[1:], *hung))]


def independent_of(first: Finding, others: Iterable[Finding]) -> list[Finding]:
    """Return the causes that have no rank in common with the first one, nor with each other."""
    causes, involved = list[Finding](), {*first.ranks, *first.others}
    for one in others:
        ours = {*one.ranks, *one.others}
        if one.step and "ends" in one.kind.properties and ours.isdisjoint(involved):
            causes, involved = [*causes, one], involved | ours
    return causes


def explain_hang(evidence: Evidence, differing: Sequence[Finding]) -> list[Finding]:
    """Return what kept the run from going on.

    Ranks that wait after others called something different wait because of that.
    """
    if any(finding.kind is FindingKind.RENDEZVOUS for finding in differing):
        return []  # the ranks are in different worlds, so none waits for the rank that it names
    hang = _Hang(evidence, waits := ends.find_waits(evidence))
    if meeting := hang.meeting():
        return meeting
    findings = hang.stand_off(differing)
    if not findings and not differing and (hang.longest_s() is not None or not hang.waits):
        stopped = evidence.facts.timed_out or evidence.facts.interrupted or evidence.record.in_progress
        if (progress := find_progress(evidence) if stopped else None) is not None:
            return [progress]
        if hang.waits:
            return [hang.still_going_on()] if evidence.facts.timed_out else []
    of_findings = [(one, rank) for one in findings for rank in (*one.ranks, *one.others)]
    explained = {rank for one, rank in of_findings if one.kind is FindingKind.DEADLOCK or waits[rank].step.message}
    by_groups = [finding for finding in differing if finding.kind is FindingKind.GROUPS]
    over_groups = {rank for finding in by_groups for rank in (*finding.ranks, *finding.others)}
    early = hang.called_early()
    for step, waiting, missing in sorted(ends.missed_steps(waits), key=lambda one: early not in ((), one[2])):
        if not (set(waiting) <= explained or set(missing) <= over_groups):
            findings.append(hang.missed(step, waiting, missing, explained=bool(findings or differing)))
    findings += hang.all_there(named={finding.step for finding in differing})
    if not differing and (importing := _find_imports(evidence, findings)) is not None:
        return [importing]
    return findings or ([] if differing or waits else hang.no_waits())


def explain_stand_off(evidence: Evidence) -> list[Finding]:
    """Return why ranks failed if none failed by itself: they waited for each other until one gave up.

    It is no stand-off if a rank was in a collective that another one, which had ended, never entered.
    """
    waits, ranks = ends.find_waits(evidence, until_failed=True), evidence.ranks
    collectives = [wait for wait in waits.values() if not wait.step.message]
    left = any(one in ranks and ranks[one].left for wait in collectives for one in wait.on)
    if left or not all(lost_a_peer(rank) for rank in evidence.facts.ranks if rank.failed):
        return []
    return _Hang(evidence, waits).stand_off(())


class _Hang(ends.Waiting):
    """Creates the findings on a run that hung."""

    def longest_s(self) -> float | None:
        """Return the longest wait if the run is in progress, or the time was up, before any rank waited long."""
        facts, longest_s = self.evidence.facts, ends.longest_wait_s(self.evidence, self.waits.values())
        is_running = self.evidence.record.in_progress and not facts.timed_out
        brief_s = _BRIEF_S if is_running else min(_BRIEF_S, _BRIEF_PART * facts.timeout_s)
        if not self.waits or not (facts.timed_out or is_running) or longest_s >= brief_s:
            return None
        return longest_s if all(rank.alive for rank in self.evidence.ranks.values()) else None

    def missed(self, step: Step, waiting: tuple[int, ...], missing: tuple[int, ...], *, explained: bool) -> Finding:
        """Return a finding on a step that some ranks waited in and others never entered."""
        ranks_of, dumped = self.evidence.ranks, self.evidence.dumped
        unknown = tuple(rank for rank in missing if dumped and rank not in ranks_of)
        missing = tuple(rank for rank in missing if rank not in unknown)
        calls = tuple(self.waits[rank].facts for rank in waiting)
        if not missing:  # the missing ranks may be those that left no dump
            common = self._common(waiting, step=step)
            return wording.MissedStep(kind=FindingKind.NOT_KNOWN, waits=calls, missing=(), unknown=unknown, **common)
        free = tuple(rank for rank in missing if rank not in self.waits)
        gone = tuple(rank for rank in free if rank in ranks_of and not ranks_of[rank].alive)
        kind, ranks, in_other_groups = FindingKind.NEVER_ENTERED, free, False
        if gone and len(gone) == len(free):
            left = FindingKind.LEFT_EARLY if all(ranks_of[rank].left for rank in gone) else FindingKind.FAILED
            kind, ranks = (FindingKind.WENT_ALONE, waiting) if len(gone) > len(waiting) else (left, gone)
            if left is FindingKind.LEFT_EARLY and len(gone) == len(waiting):
                ranks = tuple(blame_side(self.evidence, ranks_of[waiting[0]], gone))
        elif len(free) > max(1, len(waiting)) and ends.Standing.at_one_line(self.evidence, free):
            ranks = ()
        elif not free:
            kind = FindingKind.ELSEWHERE
            is_majority = ends.majority_step(self.waits) == step.number and not explained
            ranks = missing if missing == self.called_early() or is_majority else ()
            groups = {self.waits[rank].step.group for rank in missing if not self.waits[rank].step.message}
            in_other_groups = bool(groups - {step.group}) and not step.message and not explained
            members = {*waiting}.intersection(*(self.waits[rank].step.group.ranks for rank in missing))
            if in_other_groups and 0 < len(members) <= len(missing) and missing != self.called_early():
                ranks = ()  # among those that could have made both calls there is no majority
        untold: tuple[int, ...] = ()
        if free and dumped:  # dumps do not show what they did instead
            untold = () if dumped.messages else free
            ranks = ranks if dumped.messages and len(free) <= len(waiting) else ()
        refused = ends.calls_at(step.calls[rank] for rank in missing if rank in step.calls)
        return wording.MissedStep(
            kind=kind,
            waits=calls,
            missing=missing,
            unknown=unknown,
            message=step.message,
            receives=self.waits[waiting[0]].call.operation.receives,
            did=self.did(missing),
            refused=refused if len(refused) == len(missing) and all(call.error for call in refused) else (),
            in_other_groups=in_other_groups,
            untold_messages=untold,
            **self._common(waiting, ranks, step, [rank for rank in (*missing, *waiting) if rank not in ranks]),
        )

    def called_early(self) -> tuple[int, ...]:
        """Return the one waiting rank that left out a call which all others made first; empty if unknown.

        Its calls, by line, are not the beginning of what the others called, and those of each other rank are.
        """
        ranks = [rank for rank in self.evidence.ranks if self.evidence.calls(rank)]
        lines = {rank: [(call.op, call.path) for call in self.evidence.calls(rank)] for rank in ranks}
        early = list[int]()
        unsorted = self.evidence.trace.is_tail or any(trace.threads for trace in self.evidence.trace.ranks.values())
        for rank in () if len(ranks) < _FEWEST_RANKS or unsorted else self.waits:
            rest = [lines[other] for other in ranks if other != rank]
            longest = max(rest, key=len)
            is_like_one = all(one == longest[: len(one)] for one in rest)
            early += [rank] if is_like_one and lines[rank] != longest[: len(lines[rank])] else []
        return tuple(early) if len(early) == 1 else ()

    def stand_off(self, differing: Sequence[Finding]) -> list[Finding]:
        """Return ranks that wait for each other only: for messages that cannot come, or in a ring."""
        waits, cycle = self.waits, ends.find_cycle(self.waits)
        known = [] if differing else apply_rules(self, "stand_off")
        messages = all(waits[rank].step.message for rank in cycle)
        if known or not cycle or not (messages or (ends.majority_step(waits) is None and not differing)):
            return known
        steps = {waits[rank].step.number for rank in cycle}
        return [self.ring(cycle, sorted(rank for rank, wait in waits.items() if wait.step.number in steps))]

    def ring(self, cycle: tuple[int, ...], ranks: Sequence[int]) -> Finding:
        """Return a finding on a ring.

        Args:
            cycle: One rank of each step of the ring.
            ranks: All ranks that wait in these steps.
        """
        ours = [self.waits[rank] for rank in ranks]
        collectives = not any(wait.step.message for wait in ours)
        receives = all(wait.call.operation.receives for wait in ours)
        sends = all(wait.call.operation.sends for wait in ours)
        made = {wait.step.group.title: wait.step.group for wait in ours if collectives and wait.step.group.source}
        alone = (step for step in self.evidence.steps if step.message and step.missing and receives != sends)
        alone_calls = ((call, step) for step in alone for call in step.calls.values())
        unmatched = [ends.call_facts(call, step) for call, step in alone_calls if call.operation.sends == receives]
        return wording.Ring(
            cycle=cycle,
            waits=tuple(wait.facts for wait in ours),
            all_of="collectives" if collectives else "receives" if receives else "sends" if sends else "mixed",
            unmatched=tuple(call for call in unmatched if {call.rank, call.peer} & {*ranks}),
            groups=tuple(f.Side(ranks=one.ranks, what=title, lines=(one.source,)) for title, one in made.items()),
            **self._common(ranks, step=self.waits[cycle[0]].step),
        )

    def all_there(self, named: set[str]) -> list[Finding]:
        """Return steps that all ranks entered and that still did not end."""
        findings = list[Finding]()
        for step in {wait.step.number: wait.step for wait in self.waits.values() if not wait.on}.values():
            if step.title not in named and (step.message or len({call.op for call in step.calls.values()}) == 1):
                ours = {rank: wait.call for rank, wait in self.waits.items() if wait.step is step}
                entered = tuple(step.calls) if self.evidence.dumped else None
                sources, common = ends.lines_of(ours.values()), self._common([*ours], step=step)
                findings.append(wording.InFlight(entered=entered, sources=sources, **common))
        return findings

    def still_going_on(self) -> Finding:
        """Return a finding that ranks were still at work when the time was up.

        A rank that a call lacked may have been about to enter.
        """
        alive = [rank for rank, facts in sorted(self.evidence.ranks.items()) if facts.alive]
        return self._activities(FindingKind.OUT_OF_TIME, alive, longest_s=self.longest_s())

    def meeting(self) -> list[Finding]:
        """Return why ranks that were in init_process_group, or in a mesh that calls it, did not meet others."""
        locations = (self.evidence.stack_location(one) for one in self.evidence.facts.ranks if one.alive)
        meets = any(at is not None and at.call in _MEETINGS for at in locations)
        return apply_rules(self.evidence, "rendezvous") if meets else []

    def no_waits(self) -> list[Finding]:
        """Return where all ranks were, if no recorded call was waiting."""
        evidence, standing = self.evidence, ends.Standing.of(self.evidence)
        outside = [rank for rank in standing.absent if evidence.ranks[rank].stack]
        if not (alive := sorted([*standing.waiting, *outside])):
            return []
        calls = {at.call for rank in alive if (at := evidence.stack_location(evidence.ranks[rank])) is not None}
        if calls == {"init_process_group"}:
            return [self._activities(FindingKind.RENDEZVOUS, alive)]
        if standing.waiting and outside:
            return [self._activities(FindingKind.NEVER_ENTERED, alive, standing.waiting, outside)]
        blocking = standing.waited_for(evidence)
        if outside:
            gone, last = tuple(standing.gone), blocking.ranks if blocking is not None and standing.gone else ()
            return [self._activities(FindingKind.OWN_CODE, alive, gone if last else (), last)]
        blamed = blocking.ranks if blocking is not None and not evidence.trace.recorded else ()
        deviating = [rank for rank in blamed if rank in alive]
        others = [rank for rank in alive if rank not in deviating]
        return [self._activities(FindingKind.WAITING, alive, others, deviating)]

    def _activities(
        self,
        kind: FindingKind,
        alive: Sequence[int],
        waiting: Sequence[int] = (),
        ranks: Sequence[int] = (),
        **facts: Any,
    ) -> Finding:
        return wording.Activities(kind=kind, did=self.did(alive), **facts, **self._common(waiting or alive, ranks))

    def _common(
        self, waiting: Sequence[int], ranks: Sequence[int] = (), step: Step | None = None, others: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return the lines of ranks, and for how long the others had waited."""
        return {
            "ranks": tuple(ranks),
            "others": tuple(others or waiting),
            "step": step.title if step is not None else "",
            "lines": tuple(map(self._line, (*ranks, *waiting, *(() if ranks else others)))),
            "seconds": ends.waited_s(self.evidence, [self.waits[one] for one in waiting if one in self.waits]),
        }

    def _line(self, rank: int) -> str:
        """Return the line of a rank; empty if unknown."""
        if rank in self.waits:
            return self.waits[rank].call.source
        if (facts := self.evidence.ranks.get(rank)) is None or facts.left:
            return self.evidence.last_line(rank)
        location = self.evidence.last_location(facts) or self.evidence.thread_location(facts)
        return location.at if location is not None else self.evidence.last_line(rank)


def blame_side(evidence: Evidence, waiting: RankFacts, gone: Sequence[int]) -> Collection[int]:
    """Return which of them is to blame if ranks had ended and as many others needed them; nobody if unknown."""
    rule = find_hook("blame_side")
    return rule(evidence, waiting, gone) if rule and evidence.trace.recorded else ()


# -- what ranks did differently, from rules of features


def split_disagreements(evidence: Evidence) -> tuple[list[Finding], list[Finding]]:
    """Split what ranks did differently: what can stop a run, faults of groups first, and everything else."""
    stopping, other = list[Finding](), list[Finding]()
    for one in apply_rules(evidence, "disagreements"):
        stops = one.kind in (FindingKind.MISMATCH, FindingKind.SLIPPED) or one.step in evidence.unfinished_steps
        (stopping if stops else other).append(one)
    return [*apply_rules(evidence, "groups"), *stopping], other


def differed_before(evidence: Evidence, rank: int) -> Finding | None:
    """Return what ranks called differently in a step that a rank completed before it failed."""
    steps = {step.title for step in evidence.steps if rank in step.calls} if evidence.trace.recorded else ()
    return next((one for one in split_disagreements(evidence)[1] if one.step in steps), None) if steps else None
