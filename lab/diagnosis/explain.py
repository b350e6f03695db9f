"""The explanation of a run, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.diagnosis.attempts import judge_replaced, tell_attempts
from lab.diagnosis.backend import find_named_backends
from lab.diagnosis.causes import find_causes
from lab.diagnosis.ddp import tell_ddp_story
from lab.diagnosis.ends import find_ended_threads, lines_of
from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence, problems, read_evidence
from lab.diagnosis.finding import Account, Finding, FindingKind
from lab.diagnosis.links import find_flaps, find_slow_links
from lab.diagnosis.stacks import shorten_paths, shorten_stack
from lab.diagnosis.straggler import find_critical_path, find_shares, find_straggler
from lab.record.read import Record
from lab.record.result import Result
from lab.trace.steps import Step
from lab.words import merge_ranks

_WORTH_SHARES_S = 0.2
"""Runs shorter than this are not asked where their time went."""
_WORTH_TELLING_S = 0.002
"""A step that took less is not named for that: the account names the one that carried most instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What can be said of a run."""

    run: str
    scenario: str
    verdict: str
    sentence: str
    """The verdict's reason."""
    findings: tuple[Finding, ...] = ()
    """The most important first."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """By rank: the Python stack of who was stopped, or the traceback of who raised; of ranks in the findings only."""
    problems: tuple[str, ...] = ()
    """What is missing or damaged in the record, a sentence each."""

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain data."""
        names = ("run", "scenario", "verdict", "sentence")
        return {
            **{name: getattr(self, name) for name in names},
            "findings": [finding.to_json() for finding in self.findings],
            "stacks": {str(rank): text for rank, text in self.stacks.items()},
            "problems": [*self.problems],
        }


def explain(record: Record, evidence: Evidence | None = None) -> Explanation:
    """Explain a run. Works without its trace or its result too, and says what is missing."""
    result = record.result()
    evidence = evidence if evidence is not None else read_evidence(record)
    missing = [*([] if record.complete else [result.reason]), *problems(evidence)]
    ended_well = _ended_well(evidence, result)
    culprit = result.culprit
    ended_well = ended_well or _ended_from_outside(evidence)
    causes = find_causes(evidence, culprit.rank if culprit is not None else None, ended_well=ended_well)
    findings = [*causes, *find_slow_links(evidence), *tell_attempts(record)]
    if not any(finding.kind is FindingKind.CUT_OFF for finding in causes):
        findings += find_flaps(evidence)
    if evidence.trace.recorded:
        findings += _tell_trace(evidence, ended_well=ended_well)
    findings += find_ended_threads(evidence.facts.ranks)
    findings += find_named_backends(evidence.facts.named)
    if evidence.facts.joined:
        from lab.diagnosis.started import tell_started  # few runs have any

        findings += tell_started(record)
    return Explanation(
        run=record.run,
        scenario=result.scenario,
        verdict=result.verdict,
        sentence=result.reason,
        findings=tuple(sorted(findings, key=lambda finding: finding.kind.order)),
        stacks=_stacks(evidence, causes),
        problems=tuple(merge_ranks(missing)),
    )


def _tell_trace(evidence: Evidence, *, ended_well: bool) -> list[Finding]:
    """What the calls of the ranks tell of any run: who was slow, what DDP sent, where the time went."""
    untimed: Literal["", "stepped", "dumped"] = "dumped" if evidence.dumped is not None else ""
    untimed = untimed or ("stepped" if evidence.record.plan().stepped else "")
    findings = straggler = [] if untimed else find_straggler(evidence)
    if ended_well or not any(rank.failed or rank.node_lost or rank.alive for rank in evidence.facts.ranks):
        story = tell_ddp_story(evidence)
        findings = [*findings, *(one for one in story if not (untimed and one.kind is FindingKind.DDP_OVERLAP))]
        if not untimed and (straggler or evidence.trace.last >= _WORTH_SHARES_S):
            findings += [*find_shares(evidence), *find_critical_path(evidence)]
    return [*findings, _give_account(evidence, untimed)]


def _ended_well(evidence: Evidence, result: Result) -> bool:
    """Whether a run ended as it should, and by itself."""
    broke = any(rank.stopped or rank.node_lost or lost_a_peer(rank) for rank in evidence.facts.ranks)
    return result.passed and result.culprit is None and not broke


def _ended_from_outside(evidence: Evidence) -> bool:
    """Whether it is an attempt that its launcher ended, or failed with, and no rank: nobody was late, or left early."""
    facts = evidence.facts
    gave_up = any(starter.failed for starter in facts.starters) and not any(rank.failed for rank in facts.ranks)
    return judge_replaced(facts) is not None or (gave_up and not (facts.lost_nodes or facts.timed_out))


def _stacks(evidence: Evidence, findings: Sequence[Finding]) -> dict[int, str]:
    """The stacks that belong to findings: of those who are named, and of others who were stopped while they waited."""
    named = [rank for finding in findings for rank in finding.ranks]
    others = [rank for finding in findings for rank in finding.others if rank in evidence.ranks]
    ranks = dict.fromkeys([*named, *(rank for rank in others if evidence.ranks[rank].stack)])
    facts = [evidence.ranks[rank] for rank in ranks if rank in evidence.ranks]
    shown = {one.rank: shorten_stack(one.stack) if one.stack else shorten_paths(one.traceback) for one in facts}
    return {rank: text for rank, text in shown.items() if text}


def _give_account(evidence: Evidence, untimed: Literal["", "stepped", "dumped"]) -> Finding:
    """What the ranks of a run called altogether, and the step that took longest or carried most.

    `untimed` is why how long anything took says nothing.
    """
    steps = evidence.steps
    if not steps:
        return Finding(kind=FindingKind.ACCOUNT, facts=Account())
    messages = sum(step.message for step in steps)
    calls = [call for step in steps for call in step.calls.values()]
    ends = [call.end for call in calls if call.end is not None and not untimed]
    took = max(ends) - min(step.begin for step in steps) if ends else 0.0
    facts = Account(
        collectives=len(steps) - messages,
        messages=messages,
        brought_bytes=sum(call.bytes_in for call in calls),
        timed=bool(ends),
        untimed=untimed,
        others=tuple(sorted({call.rank for call in calls})),
        seconds=round(took, 6),
        **({} if untimed else _standing_out(steps)),
    )
    return Finding(kind=FindingKind.ACCOUNT, facts=facts)


def _standing_out(steps: list[Step]) -> dict[str, Any]:
    """The step that took longest, or where none took long, the one that carried most."""
    ended = [step for step in steps if step.end is not None]
    longest = max(ended, key=lambda step: (step.end or 0.0) - step.begin, default=None)
    if longest is None:
        return {}
    took = (longest.end or 0.0) - longest.begin
    if took >= _WORTH_TELLING_S and len(ended) > 1:
        pacer = longest.late
        spent = pacer.begin - longest.begin if pacer is not None else 0.0
        late = {"late_s": spent, "late_rank": pacer.rank} if pacer is not None and spent > took / 2 else {}
        at = lines_of(longest.calls.values())
        return {"standing_out": longest.title, "at": at, "longest_s": took, **late}
    largest = max(ended, key=lambda step: max(call.bytes for call in step.calls.values()))
    size, at = max(call.bytes for call in largest.calls.values()), lines_of(largest.calls.values())
    return {"standing_out": largest.title, "at": at, "largest_bytes": size}
