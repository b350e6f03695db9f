"""Where ranks were at the end of their run: how each failed, stood, or waited for others, and how far it had come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from lab.diagnosis import finding as f
from lab.diagnosis.errors import is_loss, lost_a_peer, shorten_error
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import Finding, FindingKind, find_majority, unique_lines
from lab.diagnosis.stacks import clip_stack, has_returned, is_communicating, is_leaving, shorten_paths, shorten_stack
from lab.diagnosis.wording import BlockingRank
from lab.node.messages.agent import ThreadRaised
from lab.record.result import Culprit
from lab.trace.model import Call, Phase
from lab.trace.steps import Step

_LINES = 12
"""Lines of a traceback or stack that a verdict shows."""
_WHOLE_ERROR = 4000
"""Characters of an exception that a worker tells at most; the traceback has all of it."""
_WAITS = re.compile(r"\b(?:wait|backward|synchronize|result|value)\(")


# -- who waits for whom when a run does not go on


class Wait(NamedTuple):
    """A rank that was in a call when the run was over."""

    rank: int
    call: Call
    step: Step
    on: tuple[int, ...]
    """Ranks without which the call could not end."""

    @property
    def facts(self) -> f.CallFacts:
        """The call as a finding tells it."""
        return call_facts(self.call, self.step)


class Waiting(NamedTuple):
    """A run with what its ranks wait in, for rules of features."""

    evidence: Evidence
    waits: Mapping[int, Wait]

    def did(self, ranks: Iterable[int]) -> tuple[f.Activity, ...]:
        """What ranks did."""
        return tuple(activity_of(self.evidence, rank, self.waits) for rank in ranks)


def find_waits(evidence: Evidence, *, until_failed: bool = False) -> dict[int, Wait]:
    """By rank: what every rank alive at the end waited in; if asked, also where ranks lost a peer or gave up."""
    waits = {}
    for rank, facts in evidence.ranks.items():
        call = _blocked_in(evidence, facts) or (_failed_in(evidence, facts) if until_failed else None)
        if call is not None and (step := evidence.step(call)) is not None:
            waits[rank] = Wait(rank, call, step, step.lacks(call))
    return waits


def _blocked_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """The call that a rank did not come out of.

    One that the script asked a handle for holds the rank up only where the rank stood at a line that waits.
    """
    if not rank.alive:
        return None
    unfinished = [call for call in evidence.calls(rank.rank) if call.state == "unfinished"]
    blocking = [call for call in unfinished if not call.has_handle]
    if blocking or not unfinished:
        return blocking[-1] if blocking else None
    location = evidence.stack_location(rank)
    # Such a line waits for calls that the rank issued before.
    waits = location is not None and bool(location.call or _WAITS.search(location.source))
    if rank.stack and not waits and not is_communicating(rank.stack):
        return None
    return next((call for call in unfinished if (step := evidence.step(call)) and step.missing), unfinished[0])


def _failed_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """The call in which a rank lost a peer, or waited until it gave up."""
    if not rank.failed or not lost_a_peer(rank):
        return None
    broken = evidence.broken_call(rank.rank)
    return next((call for call in evidence.calls(rank.rank) if call.error), broken[0] if broken is not None else None)


def find_cycle(waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Ranks of which each waits for the next and the last for the first; empty where there is no such ring."""
    graph = TopologicalSorter(dict.fromkeys(sorted(waits), ()))
    for rank in sorted(waits):
        for other in waits[rank].on:
            graph.add(other, rank)
    try:
        graph.prepare()
    except CycleError as error:
        return tuple(error.args[1][:-1])
    return ()


def missed_steps(waits: Mapping[int, Wait]) -> list[tuple[Step, tuple[int, ...], tuple[int, ...]]]:
    """Every step that ranks waited in for others: the step, who waited, who was waited for.

    Those come first none of whose missing ranks waits itself: they are where it began.
    """
    by_step: dict[int, list[Wait]] = {}
    for wait in waits.values():
        if wait.on:
            by_step.setdefault(wait.step.number, []).append(wait)
    steps = []
    for ours in by_step.values():
        missing = tuple(sorted({rank for wait in ours for rank in wait.on}))
        steps.append((ours[0].step, tuple(sorted(wait.rank for wait in ours)), missing))
    return sorted(steps, key=lambda item: (any(rank in waits for rank in item[2]), -len(item[1]), item[0].number))


def majority_step(waits: Mapping[int, Wait]) -> int | None:
    """Number of the step in which more than half of the waiting ranks were; None where there is none."""
    return find_majority({rank: wait.step.number for rank, wait in waits.items()})[0]


def call_facts(call: Call, step: Step, group: str = "") -> f.CallFacts:
    """A call as a finding tells it: `recv from rank 1 with tag 3`, `all_reduce #2`."""
    operation, facts = call.operation, f.CallFacts(rank=call.rank, name=call.op, source=call.source, group=group)
    if operation.sends or operation.receives:
        return replace(facts, direction="to" if operation.sends else "from", peer=call.peer, tag=call.tag or 0)
    return replace(facts, name=step.title if call.op == step.op else f"{call.op} #{call.seq}")


def waited_s(evidence: Evidence, waits: Iterable[Wait]) -> float | None:
    """How long the first of these ranks had been waiting, for a finding; None where no clock tells."""
    waits = [*waits]
    return round(longest_wait_s(evidence, waits), 6) if waits and not evidence.dumped else None


def longest_wait_s(evidence: Evidence, waits: Iterable[Wait]) -> float:
    """Seconds that the first of these ranks had been waiting when the run was over, or when it failed."""
    ends = ((evidence.end_s if wait.call.end is None else wait.call.end, wait.call.begin) for wait in waits)
    return max((end - begin for end, begin in ends if end > begin), default=0.0)


# -- what a rank did


def stood_of(evidence: Evidence, rank: RankFacts) -> f.Stood:
    """Where a rank was when its stack was taken."""
    if has_returned(rank.stack):
        return f.Stood(state="returned")
    location = evidence.stack_location(rank)
    if is_leaving(rank.stack):
        return f.Stood(state="leaving", location=location, thread=evidence.thread_location(rank))
    return f.Stood(location=location, raised=raised_by(rank.threads[0]) if rank.threads else None)


def end_of(evidence: Evidence, rank: RankFacts, *, brief: bool = False) -> f.End:
    """How a rank failed; if brief, what it raised is cut short and without addresses of PyTorch's sources."""
    if rank.out_of_memory:
        location = evidence.stack_location(rank)
        last_activity = _find_last_activity(evidence, rank.rank) if location is None else None
        held, limit = rank.memory_bytes, evidence.facts.memory_bytes
        return f.End(how="memory", location=location, held_bytes=held, limit_bytes=limit, last_activity=last_activity)
    if rank.signal and rank.raised is None:  # else its script was over: whatever killed it then is no cause
        return f.End(how="signal", signal=rank.signal, location=evidence.stack_location(rank))
    location, error = evidence.raise_location(rank), rank.error.strip()
    if len(rank.error) >= _WHOLE_ERROR:
        error = "\n".join([error, *rank.traceback.strip().splitlines()[-1:]])
    if error and not error.startswith("SystemExit"):
        text = shorten_error(error, lambda: evidence.parameter_names(rank.rank), brief=brief)
        return f.End(how="raised", error=text, location=location)
    message = error.partition("\n")[0].partition(": ")[2].strip()
    if rank.code is None and not message:
        return f.End(how="unseen", location=location)
    code = message if rank.code is None else rank.code
    text = message if not message.lstrip("-").isdigit() else ""
    return f.End(how="exited", error=text, code=code, expected_code=rank.expected_code, location=location)


def _find_last_activity(evidence: Evidence, number: int) -> f.LastActivity | None:
    """The latest call or mark of a rank that left no stack."""
    trace = evidence.trace.ranks.get(number) if evidence.has_readable_trace else None
    if trace is None or not (trace.calls or trace.phases):
        return None
    candidates: list[tuple[Call | Phase, str]] = [(call, call.op) for call in trace.calls]
    candidates += [(phase, phase.name) for phase in trace.phases]
    last, name = max(candidates, key=lambda one: one[0].begin)
    return f.LastActivity(name=name, ended=last.end is not None, source=last.source)


def activity_of(evidence: Evidence, number: int, waits: Mapping[int, Wait]) -> f.Activity:
    """What any rank did: it waited, failed, had ended, or was somewhere else."""
    rank = evidence.ranks.get(number)
    if number in waits:
        return f.Activity(rank=number, what="waited", call=waits[number].facts)
    if rank is None:
        return f.Activity(rank=number, what="unrecorded")
    before = _called_before(evidence, number)
    if rank.node_lost:
        return f.Activity(rank=number, what="node_lost", node=rank.node, after=before)
    if rank.failed:
        return f.Activity(rank=number, what="failed", end=end_of(evidence, rank, brief=True), after=before)
    if rank.left:
        return f.Activity(rank=number, what="left", code=rank.code, after=before)
    if rank.stack:
        return f.Activity(rank=number, what="stood", stood=stood_of(evidence, rank))
    for last in evidence.calls(number)[-1:]:
        return f.Activity(rank=number, what="called", call=f.CallFacts(rank=number, name=last.op, source=last.source))
    return f.Activity(rank=number, what="not_dumped" if evidence.dumped else "uncalled")


def progress_of(evidence: Evidence, number: int) -> f.Progress | None:
    """How far in its calls a rank had come when it ended; None where that is not known."""
    before, calls = _called_before(evidence, number), evidence.calls(number)
    if before is None or not calls:
        return before
    last, step = calls[-1], evidence.step(calls[-1])
    title = step.title if step is not None and (step.op == last.op or step.message) else f"{last.op} #{last.seq}"
    return f.Progress(calls=before.calls, name=title, source=last.source, unfinished=last.state != "completed")


def common_progress(evidence: Evidence, ranks: Iterable[int]) -> f.Progress | None:
    """How far ranks had come, where that is the same for all of them."""
    came = [progress_of(evidence, rank) for rank in ranks]
    alike = {(one.name, one.source, 0 if one.unfinished else one.calls) if one else None for one in came}
    return came[0] if len(alike) == 1 else None


def _called_before(evidence: Evidence, number: int) -> f.Progress | None:
    """The last call of a rank; of a message, its operation."""
    if calls := evidence.calls(number):
        last, step = calls[-1], evidence.step(calls[-1])
        name = step.title if step is not None and not step.message else last.op
        return f.Progress(calls=len(calls), name=name, source=last.source)
    # A trace without calls shows that there were none, unless a node was lost with what it had not sent.
    rank, trace = evidence.ranks.get(number), evidence.trace.ranks.get(number)
    known = trace is not None and trace.recorded and not (rank is not None and rank.node_lost)
    return f.Progress(calls=0) if known else None


def calls_at(calls: Iterable[Call]) -> tuple[f.CallFacts, ...]:
    """Calls of one step, with what they failed with."""
    return tuple(
        f.CallFacts(rank=call.rank, name=call.op, source=call.source, error=call.error, lost=is_loss(call.error))
        for call in calls
    )


def lines_of(calls: Iterable[Call]) -> tuple[str, ...]:
    """The lines of calls, each once."""
    return unique_lines(call.source for call in calls)


def of_step(step: Step, ranks: Sequence[int] = ()) -> dict[str, Any]:
    """What the facts of every finding on a step tell: whose doing it is, who else took part, and their lines."""
    others = tuple(rank for rank in sorted(step.calls) if rank not in ranks)
    lines = tuple(step.calls[rank].source for rank in (*ranks, *others))
    return {"ranks": tuple(ranks), "others": others, "step": step.title, "lines": lines}


def make_culprit(rank: RankFacts, error: str, traceback: str = "", cause: str = "") -> Culprit:
    """A rank as the culprit, with the end of its traceback or the innermost of its stack, or else somebody else's."""
    raised = "" if rank.stopped else _tail(rank.traceback)
    shown = raised or "\n".join(clip_stack(shorten_stack(rank.stack), _LINES)) or _tail(traceback)
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=shown, cause=cause)


def culprit_by(finding: Finding, evidence: Evidence) -> Culprit | None:
    """The link that a finding names, or else its first rank that is on record; None where it names nobody.

    Where a rank stood says nothing of what came over it from outside.
    """
    if finding.link:
        return Culprit(link=finding.link, error=finding.headline, cause=finding.cause)
    rank = next((evidence.ranks[rank] for rank in finding.ranks if rank in evidence.ranks), None)
    if rank is None or finding.kind not in (FindingKind.OUTSIDE, FindingKind.CUT_OFF):
        return None if rank is None else make_culprit(rank, finding.headline, cause=finding.cause)
    return Culprit(rank=rank.rank, node=rank.node, error=finding.headline, cause=finding.cause)


def _tail(traceback: str) -> str:
    return "\n".join(clip_stack(shorten_paths(traceback), _LINES))


# -- where ranks stood


class Standing(NamedTuple):
    """Where ranks were when their stacks were taken."""

    waiting: list[int]
    """In a function of torch.distributed."""
    absent: list[int]
    """Alive, and somewhere else."""
    gone: list[int]
    """Ended by themselves, the earliest first."""

    @classmethod
    def of(cls, evidence: Evidence) -> Standing:
        """Where every rank was."""
        ranks = sorted(evidence.facts.ranks, key=lambda rank: rank.ended or 0.0)
        waiting = sorted(rank.rank for rank in ranks if (at := evidence.stack_location(rank)) is not None and at.call)
        absent = sorted(rank.rank for rank in ranks if rank.alive and rank.rank not in waiting)
        return cls(waiting, absent, [rank.rank for rank in ranks if not rank.alive])

    def waited_for(self, evidence: Evidence) -> Finding | None:
        """Who kept the others waiting; None where nobody can be named."""
        waiting, gone = self.waiting, tuple(self.gone)
        if not waiting and len(self.absent) != 1:
            return None  # each was busy with something of its own, and nobody waited for another
        if self.absent:
            ranks, others = (self.absent[0],), tuple(waiting)
            stood = stood_of(evidence, evidence.ranks[ranks[0]])
            kind = FindingKind.NEVER_ENTERED if waiting else FindingKind.OWN_CODE
            return BlockingRank(kind=kind, how="absent", waited=bool(waiting), stood=stood, ranks=ranks, others=others)
        if len(gone) > len(waiting):
            location, ranks = evidence.stack_location(evidence.ranks[waiting[0]]), (waiting[0],)
            return BlockingRank(kind=FindingKind.WENT_ALONE, how="alone", location=location, ranks=ranks, others=gone)
        if gone:
            return BlockingRank(kind=FindingKind.LEFT_EARLY, how="gone", ranks=gone[:1], others=tuple(waiting))
        stacks = {rank: stood_of(evidence, evidence.ranks[rank]) for rank in waiting}
        common, deviating = find_majority(stacks)
        if not deviating:
            return None  # no majority: whose call is the wrong one cannot be told from where they stand
        rest = tuple(rank for rank in waiting if rank != deviating[0])
        stood, kind = stacks[deviating[0]], FindingKind.ELSEWHERE
        return BlockingRank(kind=kind, how="odd", stood=stood, common=common, ranks=deviating[:1], others=rest)


def raised_by(one: ThreadRaised) -> f.ThreadError:
    """What a thread raised, as a finding tells it."""
    return f.ThreadError(error=one.error.partition("\n")[0], at=one.at)
