"""The explanation of a run, from its record alone."""

from __future__ import annotations

from collections.abc import Sequence

from lab.diagnosis.attempts import judge_replaced
from lab.diagnosis.backend import find_named_backends
from lab.diagnosis.causes import find_causes
from lab.diagnosis.critical import find_critical_path
from lab.diagnosis.ddp_story import tell_ddp_story
from lab.diagnosis.earlier_attempts import tell_attempts
from lab.diagnosis.ends import at_lines
from lab.diagnosis.evidence import Evidence, problems, read_evidence
from lab.diagnosis.explanation import Explanation
from lab.diagnosis.finding import Finding
from lab.diagnosis.flaps import find_flaps
from lab.diagnosis.peers import lost_a_peer
from lab.diagnosis.slow_links import find_slow_links
from lab.diagnosis.stacks import shorten_paths, shorten_stack
from lab.diagnosis.straggler import find_shares, find_straggler
from lab.diagnosis.threads import find_ended_threads
from lab.record.read import Record
from lab.record.result import Result
from lab.trace.steps import Step
from lab.words import capital, format_bytes, format_duration, listing, merge_ranks, name_ranks, plural

_WORTH_SHARES_S = 0.2
"""Runs shorter than this are not asked where their time went."""
_STEPPED = "They were held before each call until a key was pressed, so times say nothing of this run."
_DUMPED = "That is from dumps, which do not tell how the clocks of their machines differ, so nothing is said of times."
_WORTH_TELLING_S = 0.002
"""A step that took less is not named for that: the account names the one that carried most instead."""


def explain(record: Record, evidence: Evidence | None = None) -> Explanation:
    """Explain a run. Works without its trace or its result too, and says what is missing."""
    result = record.result()
    evidence = evidence if evidence is not None else read_evidence(record)
    missing = [*([] if record.complete else [result.reason]), *problems(evidence)]
    ended_well = _ended_well(evidence, result)
    culprit = result.culprit
    ended_well = ended_well or _ended_from_outside(evidence)
    causes = find_causes(evidence, culprit.rank if culprit is not None else None, ended_well=ended_well)
    findings = [*causes]
    if evidence.trace.recorded:
        stepped = record.plan().stepped or evidence.dumped is not None
        straggler = [] if stepped else find_straggler(evidence)
        findings += straggler
        if ended_well or not any(rank.failed or rank.node_lost or rank.alive for rank in evidence.facts.ranks):
            findings += [one for one in tell_ddp_story(evidence) if not (stepped and one.kind == "ddp_overlap")]
            if not stepped and (straggler or evidence.trace.last >= _WORTH_SHARES_S):
                findings += [*find_shares(evidence), *find_critical_path(evidence)]
        untimed = _DUMPED if evidence.dumped is not None else _STEPPED if stepped else ""
        findings += _give_account(evidence, untimed)
    flaps = [] if any(finding.kind == "cut_off" for finding in causes) else find_flaps(evidence)
    findings[len(causes) : len(causes)] = [*flaps, *find_slow_links(evidence), *tell_attempts(record)]
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
        findings=tuple(findings),
        stacks=_stacks(evidence, causes),
        problems=tuple(merge_ranks(missing)),
    )


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


def _give_account(evidence: Evidence, untimed: str) -> list[Finding]:
    """What the ranks of a run called altogether, and the step that took longest or carried most.

    Where how long anything took says nothing, `untimed` is the sentence that tells why.
    """
    steps = evidence.steps
    if not steps:
        return [Finding(kind="account", sentence="No rank called a collective or sent a message.")]
    messages = sum(step.message for step in steps)
    counts = [plural(len(steps) - messages, "collective")] if messages < len(steps) else []
    counts += [plural(messages, "message")] if messages else []
    calls = [call for step in steps for call in step.calls.values()]
    ends = [call.end for call in calls if call.end is not None and not untimed]
    took = max(ends) - min(step.begin for step in steps) if ends else 0.0
    brought = sum(call.bytes_in for call in calls)
    ranks = sorted({call.rank for call in calls})
    sentence = (
        f"{capital(name_ranks(ranks))} entered {listing(counts)}{f' in {format_duration(took)}' if ends else ''} and "
        f"brought {format_bytes(brought)} to them. {untimed or _standing_out(steps)}"
    )
    return [Finding(kind="account", sentence=sentence.strip(), others=tuple(ranks), seconds=round(took, 6))]


def _standing_out(steps: list[Step]) -> str:
    """The step that took longest, or where none took long, the one that carried most."""
    ended = [step for step in steps if step.end is not None]
    longest = max(ended, key=lambda step: (step.end or 0.0) - step.begin, default=None)
    if longest is None:
        return ""
    took = (longest.end or 0.0) - longest.begin
    if took >= _WORTH_TELLING_S and len(ended) > 1:
        pacer = longest.late
        spent = pacer.begin - longest.begin if pacer is not None else 0.0
        late = f", {format_duration(spent)} of it until rank {pacer.rank} came" if pacer and spent > took / 2 else ""
        return f"The longest was {longest.title}{at_lines(longest.calls.values())}: {format_duration(took)}{late}."
    largest = max(ended, key=lambda step: max(call.bytes for call in step.calls.values()))
    size = max(call.bytes for call in largest.calls.values())
    return (
        f"The largest was {largest.title}{at_lines(largest.calls.values())}: {format_bytes(size)} a rank."
        if size
        else ""
    )
