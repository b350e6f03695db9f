"""The explanation of a run, from its record alone."""

from __future__ import annotations

from collections.abc import Sequence

from lab.explain.account import give_account
from lab.explain.ddp_story import tell_ddp_story
from lab.explain.model import Explanation
from lab.explain.straggler import find_shares, find_straggler
from lab.record.read import Record
from lab.record.result import Result
from lab.verdict.causes import find_causes
from lab.verdict.evidence import Evidence, problems, read_evidence
from lab.verdict.finding import Finding
from lab.verdict.stacks import shorten_paths, shorten_stack

_WORTH_SHARES_S = 0.2
"""Runs shorter than this are not asked where their time went."""


def explain(record: Record, evidence: Evidence | None = None) -> Explanation:
    """Explain a run. Works without its trace or its result too, and says what is missing."""
    result = record.result()
    evidence = evidence if evidence is not None else read_evidence(record)
    missing = [*([] if record.complete else [result.reason]), *problems(evidence)]
    causes = _causes(evidence, result)
    findings = [*causes]
    if evidence.traced:
        straggler = find_straggler(evidence)
        lasting = evidence.trace.last >= _WORTH_SHARES_S
        findings += [*straggler, *tell_ddp_story(evidence)]
        findings += find_shares(evidence) if not causes and (straggler or lasting) else []
        findings += give_account(evidence)
    return Explanation(
        run=record.run,
        scenario=result.scenario,
        verdict=result.verdict,
        sentence=result.reason,
        findings=tuple(findings),
        stacks=_stacks(evidence, causes),
        problems=tuple(dict.fromkeys(missing)),
    )


def _causes(evidence: Evidence, result: Result) -> list[Finding]:
    """Why it went wrong; of a run that ended as it should, nothing."""
    culprit = result.culprit
    hung = any(rank.stopped for rank in evidence.facts.ranks)
    ended_well = result.passed and culprit is None and not hung
    return find_causes(evidence, culprit.rank if culprit is not None else None, ended_well=ended_well)


def _stacks(evidence: Evidence, findings: Sequence[Finding]) -> dict[int, str]:
    """The stacks that belong to findings: of those who are named, and of others who were stopped while they waited."""
    named = [rank for finding in findings for rank in finding.ranks]
    others = [rank for finding in findings for rank in finding.others if rank in evidence.ranks]
    ranks = dict.fromkeys([*named, *(rank for rank in others if evidence.ranks[rank].stack)])
    facts = [evidence.ranks[rank] for rank in ranks if rank in evidence.ranks]
    shown = {one.rank: shorten_stack(one.stack) if one.stack else shorten_paths(one.traceback) for one in facts}
    return {rank: text for rank, text in shown.items() if text}
