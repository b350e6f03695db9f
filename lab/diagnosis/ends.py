"""Describe ranks at the end of a run: how each one failed, waited, or stood, how far it had come, and what blocked it.

Causes from outside are nodes that were paused or cut off, and ranks that a signal stopped. Engines report paused nodes,
agents report stopped workers, and kernels report connections, which features read. A node is blamed if most nodes
still reach each other and it reaches none of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from lab.diagnosis import finding as f
from lab.diagnosis.errors import is_loss, lost_a_peer, shorten_error, without_remarks
from lab.diagnosis.evidence import Evidence, apply_rules
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import Finding
from lab.diagnosis.stacks import clip_stack, has_returned, is_communicating, is_leaving, shorten_paths, shorten_stack
from lab.diagnosis.wording import BlockingRank, Outside
from lab.node.messages.agent import ThreadRaised
from lab.record.result import Culprit
from lab.trace.model import Call, Phase
from lab.trace.steps import Step
from lab.words import group_pairs


def find_external_causes(evidence: Evidence) -> list[Finding]:
    """Return everything from outside that still blocked ranks when the run was over."""
    facts, outside = evidence.facts, list[Finding]()
    for node, trouble in facts.troubled.items():
        if ranks := tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left):
            disconnected = not trouble.silent
            outside.append(Outside(what="node", node=node, how=trouble.how, disconnected=disconnected, ranks=ranks))
    halted = [rank for rank in facts.ranks if rank.halted and not rank.left]
    outside += [Outside(what="rank", node=one.node, signal=one.halted, ranks=(one.rank,)) for one in halted]
    if outside or not facts.network.stuck:
        return outside
    return apply_rules(evidence, "cut")


# -- connected parts of a broken network


def connected_parts(nodes: Collection[str], broken: Collection[Collection[str]]) -> list[tuple[str, ...]]:
    """Return the sets of nodes that still reach each other, directly or through others, the largest first."""
    left, parts, disconnected = set(nodes), list[tuple[str, ...]](), {frozenset(pair) for pair in broken}
    while left:
        part, new = set[str](), {min(left)}
        while new:
            part |= new
            new = {node for node in left - part if any(frozenset((node, other)) not in disconnected for other in new)}
        parts.append(tuple(sorted(part)))
        left -= part
    return sorted(parts, key=lambda part: (-len(part), part))


def outside_of_most(nodes: Collection[str], broken: Collection[Collection[str]]) -> tuple[str, ...]:
    """Return the nodes outside of the largest connected part; empty if that part is no majority."""
    first, *rest = connected_parts(nodes, broken)
    return tuple(node for part in rest for node in part) if 2 * len(first) > len(nodes) else ()


COMPUTES_FROM = 0.2
"""Load from which on a rank computes; one that waits or sleeps has about none."""
IDLE_TO = 0.01
"""Load up to which a rank waits or sleeps."""
_LINES = 12
"""Lines of a traceback or stack in a verdict."""
_WHOLE_ERROR = 4000
"""A worker reports at most this many characters of an exception; the traceback has all of it."""
_WAITS = re.compile(r"\b(?:wait|backward|synchronize|result|value)\(")
_WAITS_FOR_KEY = re.compile(r"store\w*(?:\(\))?\.(?:wait|get)\(", re.IGNORECASE)
"""A line that waits for a key that another rank sets; a store has no Python frame of its own."""


# -- who waits for whom when a run hangs


class Wait(NamedTuple):
    """A rank that was in a call when the run was over."""

    rank: int
    call: Call
    step: Step
    on: tuple[int, ...]
    """Ranks that kept the call from ending."""

    @property
    def facts(self) -> f.CallFacts:
        """The call as facts of a finding."""
        return call_facts(self.call, self.step)


class Waiting(NamedTuple):
    """A run with the waits of its ranks, for rules of features."""

    evidence: Evidence
    waits: Mapping[int, Wait]

    def did(self, ranks: Iterable[int]) -> tuple[f.Activity, ...]:
        """Return what ranks did."""
        return tuple(activity_of(self.evidence, rank, self.waits) for rank in ranks)


def find_waits(evidence: Evidence, *, until_failed: bool = False) -> dict[int, Wait]:
    """Return the calls that ranks waited in at the end, by rank.

    Args:
        evidence: The run.
        until_failed: Include ranks that failed because they lost a peer or gave up.
    """
    waits = {}
    for rank, facts in evidence.ranks.items():
        call = _blocked_in(evidence, facts) or (_failed_in(evidence, facts) if until_failed else None)
        if call is not None and (step := evidence.step(call)) is not None:
            waits[rank] = Wait(rank, call, step, step.lacks(call))
    for rank, wait in waits.items():
        free = tuple(one for one in wait.on if one not in waits and one in evidence.ranks and evidence.ranks[one].alive)
        if free and wait.step.message and wait.call.peer is None:  # of any rank: these may still send it
            waits[rank] = wait._replace(on=free)
    return waits


def _blocked_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """Return the call that blocked a rank.

    A call with a handle blocks the rank only at a line that waits.
    """
    if not rank.alive:
        return None
    unfinished = [call for call in evidence.calls(rank.rank) if call.state == "unfinished"]
    if (blocking := [call for call in unfinished if not call.has_handle]) or not unfinished:
        return blocking[-1] if blocking else None
    location = evidence.stack_location(rank)
    # Such a line waits for calls that the rank issued earlier.
    waits = location is not None and bool(location.call or _WAITS.search(location.source))
    if rank.stack and not waits and not is_communicating(rank.stack):
        return None
    return next((call for call in unfinished if (step := evidence.step(call)) and step.missing), unfinished[0])


def _failed_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """Return the call in which a rank lost a peer, or waited until it gave up."""
    if not rank.failed or not lost_a_peer(rank):
        return None
    broken = evidence.broken_call(rank.rank)
    return next((call for call in evidence.calls(rank.rank) if call.error), broken[0] if broken is not None else None)


def find_cycle(waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Return a ring of ranks in which each waits for the next, and the last for the first; empty if there is none."""
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
    """Return each step in which ranks waited for others: the step, who waited, and who was missing.

    Steps whose missing ranks do not wait themselves come first: the problem began there.
    """
    steps = []
    for ours in group_pairs((wait.step.number, wait) for wait in waits.values() if wait.on).values():
        missing = tuple(sorted({rank for wait in ours for rank in wait.on}))
        steps.append((ours[0].step, tuple(sorted(wait.rank for wait in ours)), missing))
    return sorted(steps, key=lambda item: (any(rank in waits for rank in item[2]), -len(item[1]), item[0].number))


def majority_step(waits: Mapping[int, Wait]) -> int | None:
    """Return the number of the step that more than half of the waiting ranks are in; None if there is none."""
    return f.find_majority({rank: wait.step.number for rank, wait in waits.items()})[0]


def call_facts(call: Call, step: Step, group: str = "") -> f.CallFacts:
    """Return a call as facts of a finding: `recv from rank 1 with tag 3`, `all_reduce #2`."""
    operation, facts = call.operation, f.CallFacts(rank=call.rank, name=call.op, source=call.source, group=group)
    if operation.sends or operation.receives:
        return replace(facts, direction="to" if operation.sends else "from", peer=call.peer, tag=call.tag or 0)
    return replace(facts, name=step.title if call.op == step.op else f"{call.op} #{call.seq}")


def waited_s(evidence: Evidence, waits: Iterable[Wait]) -> float | None:
    """Return the longest wait of these ranks for a finding, in seconds; None if no clock tells."""
    waits = [*waits]
    return round(longest_wait_s(evidence, waits), 6) if waits and not evidence.dumped else None


def longest_wait_s(evidence: Evidence, waits: Iterable[Wait]) -> float:
    """Return the longest wait of these ranks in seconds, until the run was over or the call failed."""
    ends = ((evidence.end_s if wait.call.end is None else wait.call.end, wait.call.begin) for wait in waits)
    return max((end - begin for end, begin in ends if end > begin), default=0.0)


# -- what a rank did


def stood_of(evidence: Evidence, rank: RankFacts) -> f.Stood:
    """Return where a rank was when its stack was taken."""
    if has_returned(rank.stack):
        return f.Stood(state="returned")
    location = evidence.stack_location(rank)
    if is_leaving(rank.stack):
        return f.Stood(state="leaving", location=location, thread=evidence.thread_location(rank))
    return f.Stood(location=location, raised=raised_by(rank.threads[0]) if rank.threads else None)


def end_of(evidence: Evidence, rank: RankFacts, *, brief: bool = False) -> f.End:
    """Return how a rank failed; if `brief`, its error is cut and has no paths of PyTorch's sources."""
    if rank.out_of_memory:
        location = evidence.stack_location(rank)
        last_activity = _find_last_activity(evidence, rank.rank) if location is None else None
        held, limit = rank.memory_bytes, evidence.facts.memory_bytes
        return f.End(how="memory", location=location, held_bytes=held, limit_bytes=limit, last_activity=last_activity)
    if rank.signal and rank.raised is None:  # if it raised, its script was over, and the signal is no cause
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
    """Return the latest call or phase of a rank that left no stack."""
    trace = evidence.trace.ranks.get(number) if evidence.trace.recorded else None
    if trace is None or not (trace.calls or trace.phases):
        return None
    candidates: list[tuple[Call | Phase, str]] = [(call, call.op) for call in trace.calls]
    candidates += [(phase, phase.name) for phase in trace.phases]
    last, name = max(candidates, key=lambda one: one[0].begin)
    return f.LastActivity(name=name, ended=last.end is not None, source=last.source)


def activity_of(evidence: Evidence, number: int, waits: Mapping[int, Wait]) -> f.Activity:
    """Return what a rank did: it waited, failed, had ended, or was somewhere else."""
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
    skipped = number in evidence.trace.ranks and evidence.trace.ranks[number].skipped
    return f.Activity(rank=number, what="not_dumped" if evidence.dumped or skipped else "uncalled")


def progress_of(evidence: Evidence, number: int) -> f.Progress | None:
    """Return how far in its calls a rank had come when it ended; None if unknown."""
    before, calls = _called_before(evidence, number), evidence.calls(number)
    if before is None or not calls:
        return before
    last, step = calls[-1], evidence.step(calls[-1])
    title = step.title if step is not None and (step.op == last.op or step.message) else f"{last.op} #{last.seq}"
    return f.Progress(calls=before.calls, name=title, source=last.source, unfinished=last.state != "completed")


def common_progress(evidence: Evidence, ranks: Iterable[int]) -> f.Progress | None:
    """Return how far ranks had come, if it is the same for all of them."""
    came = [progress_of(evidence, rank) for rank in ranks]
    alike = {(one.name, one.source, 0 if one.unfinished else one.calls) if one else None for one in came}
    return came[0] if len(alike) == 1 else None


def _called_before(evidence: Evidence, number: int) -> f.Progress | None:
    """Return the last call of a rank as progress; a message is named by its operation."""
    if calls := evidence.calls(number):
        last, step = calls[-1], evidence.step(calls[-1])
        name = step.title if step is not None and not step.message else last.op
        return f.Progress(calls=evidence.trace.ranks[number].skipped + len(calls), name=name, source=last.source)
    # A trace without calls means that there were none, unless it ended early, or a node was lost with unsent data.
    rank, trace = evidence.ranks.get(number), evidence.trace.ranks.get(number)
    node_lost = rank is not None and rank.node_lost
    known = trace is not None and trace.recorded and not (trace.skipped or trace.cut or node_lost)
    return f.Progress(calls=0) if known else None


def calls_at(calls: Iterable[Call]) -> tuple[f.CallFacts, ...]:
    """Return the calls of one step with their errors."""
    return tuple(
        f.CallFacts(rank=call.rank, name=call.op, source=call.source, error=call.error, lost=is_loss(call.error))
        for call in calls
    )


def lines_of(calls: Iterable[Call]) -> tuple[str, ...]:
    """Return the lines of calls, each once."""
    return f.unique_lines(call.source for call in calls)


def of_step(step: Step, ranks: Sequence[int] = ()) -> dict[str, Any]:
    """Return the common facts of findings on a step: responsible ranks, other ranks, and their lines."""
    others = tuple(rank for rank in sorted(step.calls) if rank not in ranks)
    lines = tuple(step.calls[rank].source for rank in (*ranks, *others))
    return {"ranks": tuple(ranks), "others": others, "step": step.title, "lines": lines}


def make_culprit(rank: RankFacts, error: str, cause: str = "") -> Culprit:
    """Return a rank as the culprit, with the end of its traceback or its innermost frames."""
    shown = ("" if rank.stopped else _tail(rank.traceback)) or "\n".join(clip_stack(shorten_stack(rank.stack), _LINES))
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=shown, cause=cause)


def culprit_by(finding: f.Finding, evidence: Evidence) -> Culprit | None:
    """Return the culprit that a finding names: its link, or its first recorded rank; None if it names no rank.

    For causes from outside, the stack of the rank explains nothing and is left out.
    """
    if finding.link:
        return Culprit(link=finding.link, error=finding.headline, cause=finding.cause)
    rank = next((evidence.ranks[rank] for rank in finding.ranks if rank in evidence.ranks), None)
    if rank is None or finding.kind not in (f.FindingKind.OUTSIDE, f.FindingKind.CUT_OFF):
        return None if rank is None else make_culprit(rank, finding.headline, cause=finding.cause)
    return Culprit(rank=rank.rank, node=rank.node, error=finding.headline, cause=finding.cause)


def _tail(traceback: str) -> str:
    return "\n".join(clip_stack(without_remarks(shorten_paths(traceback)), _LINES))


# -- where ranks were, by their stacks


def _is_in_call(evidence: Evidence, rank: RankFacts) -> bool:
    """Return whether a rank was in a function of torch.distributed, or waited for a key of a store.

    A forward that only computes is none.
    """
    at = evidence.stack_location(rank)
    computes = rank.load >= COMPUTES_FROM and not is_communicating(rank.stack)
    in_call = at is not None and bool(at.call or (_WAITS_FOR_KEY.search(at.source) and not computes))
    return at is not None and in_call and not (computes and at.call.startswith("DistributedDataParallel"))


class Standing(NamedTuple):
    """Ranks by where they were when their stacks were taken."""

    waiting: list[int]
    """In a function of torch.distributed."""
    absent: list[int]
    """Alive, and not in torch.distributed."""
    gone: list[int]
    """Ended by themselves, the earliest first."""

    @classmethod
    def of(cls, evidence: Evidence) -> Standing:
        """Sort the ranks of a run by where they were."""
        ranks = sorted(evidence.facts.ranks, key=lambda rank: rank.ended or 0.0)
        waiting = sorted(rank.rank for rank in ranks if _is_in_call(evidence, rank))
        absent = sorted(rank.rank for rank in ranks if rank.alive and rank.rank not in waiting)
        return cls(waiting, absent, [rank.rank for rank in ranks if not rank.alive])

    @staticmethod
    def at_one_line(evidence: Evidence, ranks: Iterable[int]) -> bool:
        """Return whether all of these ranks were at the same line; False if a line is unknown."""
        locations = [evidence.stack_location(evidence.ranks[rank]) for rank in ranks if rank in evidence.ranks]
        return None not in locations and len({location.at for location in locations if location is not None}) == 1

    def waited_for(self, evidence: Evidence) -> f.Finding | None:
        """Return the rank that kept the others waiting; None if no rank can be named."""
        waiting, gone = self.waiting, tuple(self.gone)
        if not waiting and len(self.absent) != 1:
            return None  # each rank was busy in its own code, and none waited
        if len(self.absent) > max(1, len(waiting)) and self.at_one_line(evidence, self.absent):
            return None  # they may wait for something that the others did not do
        if self.absent:
            ranks, others = (self.absent[0],), tuple(waiting)
            stood = stood_of(evidence, evidence.ranks[ranks[0]])
            kind = f.FindingKind.NEVER_ENTERED if waiting else f.FindingKind.OWN_CODE
            return BlockingRank(kind=kind, how="absent", waited=bool(waiting), stood=stood, ranks=ranks, others=others)
        if len(gone) == len(waiting):
            return None  # either side may have made a call too many or too few
        if len(gone) > len(waiting):
            location, ranks = evidence.stack_location(evidence.ranks[waiting[0]]), (waiting[0],)
            return BlockingRank(kind=f.FindingKind.WENT_ALONE, how="alone", location=location, ranks=ranks, others=gone)
        if gone:
            kind, line, others = f.FindingKind.LEFT_EARLY, evidence.exit_line(gone[0]), tuple(waiting)
            return BlockingRank(
                kind=kind, how="gone", ranks=gone[:1], others=others, lines=(line,) if ":" in line else ()
            )
        stacks = {rank: stood_of(evidence, evidence.ranks[rank]) for rank in waiting}
        common, deviating = f.find_majority(stacks)
        if not deviating:
            return None  # without a majority, the stacks do not show whose call is the mistake
        rest = tuple(rank for rank in waiting if rank != deviating[0])
        stood, kind = stacks[deviating[0]], f.FindingKind.ELSEWHERE
        return BlockingRank(kind=kind, how="odd", stood=stood, common=common, ranks=deviating[:1], others=rest)


def raised_by(one: ThreadRaised) -> f.ThreadError:
    """Return the error of a thread as facts of a finding."""
    return f.ThreadError(error=one.error.partition("\n")[0], at=one.at)
