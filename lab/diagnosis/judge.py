"""Return the verdict on a run and a sentence that explains it. Pure: facts in, judgement out."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.reasons import describe_limits, passed_reason, replaced_reason
from lab.feature import find_hook
from lab.record.layout import TRACE
from lab.record.record_files import list_folder, read_file
from lab.words import format_duration


def judge_evidence(evidence: Evidence) -> Judgement:
    """Return how a run went and who is responsible; the result is the same at its end as from its record."""
    judgement = _judge(evidence)
    if judgement.culprit is not None:
        from lab.diagnosis.errors import with_cause  # not needed if nothing failed

        judgement = with_cause(judgement, evidence.facts)
    # The trace is read only if the judgement needed it.
    ranks = vars(evidence)["trace"].ranks.values() if "trace" in vars(evidence) else ()
    unrecorded = next((f"; no call is on record: {rank.cut}" for rank in ranks if rank.cut and not rank.calls), "")
    return replace(judgement, reason=judgement.reason + describe_limits(evidence.facts) + unrecorded)


def _judge(evidence: Evidence) -> Judgement:
    facts = evidence.facts
    if facts.engine_lost or facts.refused:
        return Judgement(verdict="error", reason=facts.engine_lost or facts.refused)
    if facts.interrupted:
        after = f"interrupted after {format_duration(facts.duration_s)}"
        if not any(rank.stack for rank in facts.ranks):
            return Judgement(verdict="error", reason=after)
        from lab.diagnosis.hang import judge_hang

        return replace(judge_hang(evidence, after), verdict="error")
    if (replaced := judge_replaced(facts)) is not None:
        return replaced
    # A run that passes needs none of the following, so the imports are here.
    if facts.lost_nodes or any(rank.failed for rank in (*facts.ranks, *facts.parents)):
        from lab.diagnosis.failure import judge_failure

        judgement, late = judge_failure(evidence), ""
        if facts.timed_out and facts.starters and not any(starter.failed for starter in facts.starters):
            late = f"; the launcher had not restarted the workers at the time limit of {facts.time_limit_text}"
        return replace(judgement, reason=judgement.reason + late)
    judge_starters = find_hook("judge_starters") if facts.starters else None
    of_starters: Judgement | None = judge_starters(evidence) if judge_starters else None
    if of_starters is not None:
        return of_starters
    if facts.timed_out:
        from lab.diagnosis.hang import judge_hang

        return judge_hang(evidence)
    reason = passed_reason(facts)
    if any(rank.outlived and (rank.code or rank.signal) for rank in facts.ranks):
        describe_outlived = find_hook("outlived_reason")
        reason = describe_outlived(evidence) if describe_outlived else reason
    if worth_reading(evidence.record.path / TRACE):
        from lab.diagnosis.causes import find_silent_errors

        if silent_errors := find_silent_errors(evidence):
            what = "; ".join(one.headline for one in silent_errors)
            reason = f"{reason}, but {what}: see lab explain"
            return Judgement(verdict="passed", reason=reason, findings=tuple(silent_errors))
    return Judgement(verdict="passed", reason=reason)


# -- an attempt after which the launcher restarted the workers


def judge_replaced(facts: RunFacts) -> Judgement | None:
    """Return the judgement on an attempt that the launcher ended, not a rank; None if a rank or a node ended it.

    If a node joins, the launcher's agents end their workers one after the other, so some workers lose their peers.
    """
    failed = [rank for rank in facts.ranks if rank.failed]
    if facts.lost_nodes or not facts.restarted:
        return None
    if failed:
        from lab.diagnosis.errors import lost_a_peer

        if not (facts.came and all(map(lost_a_peer, failed))) or any(rank.left for rank in facts.ranks):
            return None
    return Judgement(verdict="error", reason=replaced_reason(facts))


# -- whether the traces of a run in which nothing failed are worth reading: reading takes longer than a short run
#
# Nearly every silent error, and a recording that ended early, leaves one of these signs in the bytes of the traces:
# - handles of the script's own, and a tensor of a message that it changed before it waited
# - operations that fill several tensors, or slices of sizes that the script chose
# - NaN
# - numbers so large that they have an exponent
# - the reason why the recording ended
# - replicas with different state, or with more steps of the optimizer on some ranks
# - other calls, tensors, roots, or reductions on one rank than on another, or other tensors sent than received

_MOST_BYTES = 1 << 20
_HANDLES = rb'"changed":|"async":true(?![^\n]*"via":"(?:DistributedDataParallel|backward))'
_SEVERAL_TENSORS = rb'"op":"(?:all_gather|gather|all_to_all)"|"split":'
_SIGNS = re.compile(b"|".join((_HANDLES, _SEVERAL_TENSORS, rb'"nan"', rb"\de\+\d", rb'{"k":"(?:cut|threads)"')))
_STATE = re.compile(rb'("[do]":\d+,[^\n]*?)"(?:params|norms)":(\[.*?\])(?:,"(?:buckets|grads)"|})')
"""For a module, or for an optimizer step with its gradients: state that should be the same on all ranks."""
_CALLED = re.compile(rb'"op":("\w+"),"g":("[^"]*","seq":\d+)')
"""A collective; its group and number."""
_ALIKE = rb'"op":"(?:all_reduce|broadcast|reduce|all_gather_into_tensor|reduce_scatter_tensor)"'
_PASSED = re.compile(_ALIKE + rb',("g":"[^"]*","seq":\d+),([^\n]*?"in":\[\[.*?\]\])')
"""For one of which all ranks pass the same: its group and number; what a rank passed."""
_MESSAGE = re.compile(rb'"op":"(?:send|recv)"[^\n]*?"in":(\[.*?\]),"ib":\d+[^\n]*?"out":(\[.*?\]),"ob"')
"""For a message: the tensor sent; the one received."""


def worth_reading(folder: Path) -> bool:
    """Return whether traces of a passed run are short enough to read and show a sign of an error."""
    sizes = list_folder(folder.parent, folder.name)
    if sum(sizes.values()) > _MOST_BYTES:
        return False
    traces, known = list[bytes](), dict[bytes, bytes]()
    for name in sizes:
        with suppress(OSError):
            traces.append(read_file(folder.parent, f"{folder.name}/{name}", _MOST_BYTES))
    if any(map(_SIGNS.search, traces)):
        return True
    same = [match for trace in traces for pattern in (_STATE, _PASSED) for match in pattern.findall(trace)]
    same += [(number, op) for trace in traces for op, number in _CALLED.findall(trace)]
    messages = [match for trace in traces for match in _MESSAGE.findall(trace)]
    sent, received = (
        (Counter(filter(b"[]".__ne__, ends)) for ends in zip(*messages, strict=True)) if messages else ({}, {})
    )
    steps = {trace.count(b'"n":"step","e":0') for trace in traces}
    return sent != received or len(steps) > 1 or any(known.setdefault(what, values) != values for what, values in same)
