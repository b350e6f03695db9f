"""Explain a run from its record alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from lab.diagnosis.causes import find_causes
from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence, Explained, apply_rules, read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_replaced
from lab.diagnosis.stacks import shorten_paths, shorten_stack
from lab.frozen import Frozen
from lab.record.read import Record
from lab.record.result import Result
from lab.words import merge_ranks


class Explanation(Frozen):
    """The whole diagnosis of a run."""

    run: str
    scenario: str
    verdict: str
    sentence: str
    """The verdict's reason."""
    findings: tuple[Finding, ...] = ()
    """The most important first."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """By rank: the Python stack of a stopped rank, or the traceback of a failed one; only for ranks in the findings."""
    problems: tuple[str, ...] = ()
    """What is missing or damaged in the record, one sentence each."""

    @property
    def new_sentences(self) -> list[str]:
        """The sentences of the findings, without what the verdict's reason already says."""
        return [*filter(None, (_without_headline(one, self.sentence) for one in self.findings))]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        stacks = {str(rank): stack for rank, stack in self.stacks.items()}
        findings = [one.to_json() for one in self.findings]
        return {**vars(self), "findings": findings, "stacks": stacks, "problems": [*self.problems]}


def _without_headline(finding: Finding, reason: str) -> str:
    """Return the sentence of a finding, without its headline if the reason includes that."""
    reported = re.search(rf"{re.escape(finding.headline)}(?!\w)", reason)
    return " ".join(filter(None, finding.words[1:])) if reported else finding.sentence


def explain_run(record: Record, evidence: Evidence | None = None) -> Explanation:
    """Explain a run, also without its trace or its result, and report what is missing."""
    result = record.result()
    evidence = evidence if evidence is not None else read_evidence(record)
    missing = [*([] if record.complete or record.in_progress else [result.reason]), *_problems(evidence)]
    ended_well = _ended_well(evidence, result)
    culprit = result.culprit.rank if result.culprit is not None else None
    causes, ranks = find_causes(evidence, culprit, ended_well=ended_well), evidence.facts.ranks
    went_on = ended_well or not any(rank.failed or rank.node_lost or rank.alive for rank in ranks)
    findings = [*causes, *apply_rules(Explained(evidence, causes, went_on), "explain")]
    ordered, problems = tuple(sorted(findings, key=lambda one: one.kind.order)), tuple(merge_ranks(missing))
    known = {"run": record.run, "scenario": result.scenario, "verdict": result.verdict, "sentence": result.reason}
    return Explanation(**known, findings=ordered, stacks=_stacks(evidence, causes), problems=problems)


def _ended_well(evidence: Evidence, result: Result) -> bool:
    """Return whether a run ended as it should.

    It ended by itself, and no rank was late or left early; or its launcher ended it.
    """
    facts = evidence.facts
    broke = any(rank.stopped or rank.node_lost or lost_a_peer(rank) for rank in facts.ranks)
    launcher_failed = any(starter.failed for starter in facts.starters) and not any(rank.failed for rank in facts.ranks)
    from_outside = judge_replaced(facts) is not None or (launcher_failed and not (facts.lost_nodes or facts.timed_out))
    return from_outside or (result.passed and result.culprit is None and not broke)


def _problems(evidence: Evidence) -> list[str]:
    """Return what is missing or damaged in a record, one sentence each."""
    record, missing = evidence.record, [*(evidence.dumped.lacks if evidence.dumped is not None else ())]
    if not record.workers():
        missing.append("the record has no readable plan.json, so the number of ranks is unknown")
    if not any(record.events()):
        missing.append("the record has no readable events.jsonl, so it is unknown how ranks ended")
    if not evidence.trace.recorded:
        return [*missing, "the run has no trace, so the calls of its ranks are unknown"]
    running, cut = record.in_progress, evidence.trace.cut_short
    known = {cut.get(one.rank) for one in evidence.facts.ranks if running or one.stopped or one.signal or one.node_lost}
    return missing + [problem for problem in evidence.trace.problems if problem not in known]


def _stacks(evidence: Evidence, findings: Sequence[Finding]) -> dict[int, str]:
    """Return the stacks that belong to findings.

    They are those of ranks that the findings name, and of other ranks that the lab stopped while they waited.
    """
    known = evidence.ranks
    ranks = [rank for finding in findings for rank in finding.ranks if rank in known]
    ranks += [rank for finding in findings for rank in finding.others if rank in known and known[rank].stack]
    facts = [known[rank] for rank in dict.fromkeys(ranks)]
    shown = {one.rank: shorten_stack(one.stack) if one.stack else shorten_paths(one.traceback) for one in facts}
    return {rank: text for rank, text in shown.items() if text}
