"""What a rank did at the end of its run: how it failed, where it stood, how far it had come in its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.diagnosis.errors import is_loss, telling_text
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import (
    Activity,
    CallFacts,
    End,
    Finding,
    FindingKind,
    LastSeen,
    Progress,
    Stood,
    StoodApart,
    ThreadEnded,
    ThreadError,
    majority,
)
from lab.diagnosis.stacks import clip_stack, has_returned, is_leaving, shorten_paths, shorten_stack
from lab.diagnosis.waits import Wait
from lab.node.messages.agent import ThreadRaised
from lab.record.result import Culprit
from lab.trace.model import Call

_LINES = 12
"""Lines of a traceback or stack that a verdict shows."""
_WHOLE_ERROR = 4000
"""Characters of an exception that a worker tells at most; the traceback has all of it."""


def stood_of(evidence: Evidence, rank: RankFacts) -> Stood:
    """Where a rank was when its stack was taken."""
    if has_returned(rank.stack):
        return Stood(state="returned")
    place = evidence.stood(rank)
    if is_leaving(rank.stack):
        return Stood(state="leaving", place=place, thread=evidence.thread(rank))
    return Stood(place=place, raised=_raised(rank.threads[0]) if rank.threads else None)


def end_of(evidence: Evidence, rank: RankFacts, *, brief: bool = False) -> End:
    """How a rank failed; if brief, what it raised is cut short and without addresses of PyTorch's sources."""
    if rank.out_of_memory:
        place = evidence.stood(rank)
        return End(
            how="memory",
            place=place,
            held_bytes=rank.memory_bytes,
            limit_bytes=evidence.facts.memory_bytes,
            last_seen=_last_seen(evidence, rank.rank) if place is None else None,
        )
    if rank.signal and rank.raised is None:  # else its script was over: whatever killed it then is no cause
        return End(how="signal", signal=rank.signal, place=evidence.stood(rank))
    place, error = evidence.raised(rank), _whole_error(rank)
    if error and not error.startswith("SystemExit"):
        text = telling_text(error, lambda: evidence.parameter_names(rank.rank), brief=brief)
        return End(how="raised", error=text, place=place)
    said = error.partition("\n")[0].partition(": ")[2].strip()
    if rank.code is None and not said:
        return End(how="unseen", place=place)
    return End(
        how="exited",
        error=said if not said.lstrip("-").isdigit() else "",
        code=said if rank.code is None else rank.code,
        expected_code=rank.expected_code,
        place=place,
    )


def _whole_error(rank: RankFacts) -> str:
    error = rank.error.strip()
    cut = len(rank.error) >= _WHOLE_ERROR
    return "\n".join([error, *rank.traceback.strip().splitlines()[-1:]]) if cut else error


def _last_seen(evidence: Evidence, number: int) -> LastSeen | None:
    """The latest call or mark of a rank that left no stack."""
    of_rank = evidence.trace.ranks.get(number) if evidence.at_hand else None
    seen = [(call.begin, call.op, call.end, call.source) for call in of_rank.calls] if of_rank else []
    seen += [(mark.begin, mark.name, mark.end, mark.source) for mark in of_rank.marks] if of_rank else []
    if not seen:
        return None
    _, name, end, line = max(seen, key=lambda one: one[0])
    return LastSeen(name=name, ended=end is not None, source=line)


def activity_of(evidence: Evidence, number: int, waits: Mapping[int, Wait]) -> Activity:
    """What any rank did: it waited, failed, had ended, or was somewhere else."""
    rank = evidence.ranks.get(number)
    if number in waits:
        return Activity(rank=number, what="waited", call=waits[number].facts)
    if rank is None:
        return Activity(rank=number, what="unrecorded")
    if rank.node_lost:
        return Activity(rank=number, what="node_lost", node=rank.node, after=_called_before(evidence, number))
    if rank.failed:
        end = end_of(evidence, rank, brief=True)
        return Activity(rank=number, what="failed", end=end, after=_called_before(evidence, number))
    if rank.left:
        return Activity(rank=number, what="left", code=rank.code, after=_called_before(evidence, number))
    if rank.stack:
        return Activity(rank=number, what="stood", stood=stood_of(evidence, rank))
    for last in evidence.calls(number)[-1:]:
        return Activity(rank=number, what="called", call=CallFacts(rank=number, name=last.op, source=last.source))
    return Activity(rank=number, what="not_dumped" if evidence.dumped else "uncalled")


def activities_of(evidence: Evidence, ranks: Iterable[int], waits: Mapping[int, Wait]) -> tuple[Activity, ...]:
    """The same of several."""
    return tuple(activity_of(evidence, rank, waits) for rank in ranks)


def progress_of(evidence: Evidence, number: int) -> Progress | None:
    """How far in its calls a rank had come when it ended; None where that is not known."""
    calls = evidence.calls(number)
    if not calls:
        return Progress(calls=0) if _has_called_nothing(evidence, number) else None
    last = calls[-1]
    step = evidence.step(last)
    title = step.title if step is not None and (step.op == last.op or step.message) else f"{last.op} #{last.seq}"
    return Progress(calls=len(calls), name=title, source=last.source, unfinished=last.state != "completed")


def common_progress(evidence: Evidence, ranks: Iterable[int]) -> Progress | None:
    """How far ranks had come, where that is the same for all of them."""
    came = [progress_of(evidence, rank) for rank in ranks]
    alike = {(one.name, one.source, 0 if one.unfinished else one.calls) if one else None for one in came}
    return came[0] if len(alike) == 1 else None


def _called_before(evidence: Evidence, number: int) -> Progress | None:
    """The last call of a rank; of a message, its operation."""
    calls = evidence.calls(number)
    if not calls:
        return Progress(calls=0) if _has_called_nothing(evidence, number) else None
    step = evidence.step(calls[-1])
    name = step.title if step is not None and not step.message else calls[-1].op
    return Progress(calls=len(calls), name=name, source=calls[-1].source)


def _has_called_nothing(evidence: Evidence, number: int) -> bool:
    """Whether a trace shows no call of a rank, and would: what a node had not sent is lost with it."""
    rank, trace = evidence.ranks.get(number), evidence.trace.ranks.get(number)
    return trace is not None and trace.recorded and not (trace.calls or (rank is not None and rank.node_lost))


def calls_at(calls: Iterable[Call]) -> tuple[CallFacts, ...]:
    """Calls of one step, with what they failed with."""
    return tuple(
        CallFacts(rank=call.rank, name=call.op, source=call.source, error=call.error, lost=is_loss(call.error))
        for call in calls
    )


def lines_of(calls: Iterable[Call]) -> tuple[str, ...]:
    """The lines of calls, each once."""
    return tuple(dict.fromkeys(call.source for call in calls if call.source))


def blame(rank: RankFacts, error: str, traceback: str = "", cause: str = "") -> Culprit:
    """A rank as the culprit, with the end of its traceback or the innermost of its stack, or else somebody else's."""
    raised = "" if rank.stopped else _tail(rank.traceback)
    shown = raised or "\n".join(clip_stack(shorten_stack(rank.stack), _LINES)) or _tail(traceback)
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=shown, cause=cause)


def _tail(traceback: str) -> str:
    return "\n".join(clip_stack(shorten_paths(traceback), _LINES))


# -- where ranks stood


@dataclass(frozen=True)
class Standing:
    """Where ranks were when their stacks were taken."""

    waiting: list[int]
    """In a function of torch.distributed."""
    absent: list[int]
    """Alive, and somewhere else."""
    gone: list[int]
    """Ended by themselves, the earliest first."""

    @classmethod
    def of(cls, evidence: Evidence) -> Standing:
        """Look at every rank."""
        ranks = sorted(evidence.facts.ranks, key=lambda rank: rank.ended or 0.0)
        waiting = sorted(rank.rank for rank in ranks if (at := evidence.stood(rank)) is not None and at.call)
        absent = sorted(rank.rank for rank in ranks if rank.alive and rank.rank not in waiting)
        return cls(waiting, absent, [rank.rank for rank in ranks if not rank.alive])

    def waited_for(self, evidence: Evidence) -> Finding | None:
        """Who kept the others waiting; None where nobody can be named."""
        waiting, kind = self.waiting, FindingKind.NEVER_ENTERED
        if len(self.absent) > 1 and not waiting:
            return None  # each was busy with something of its own, and nobody waited for another
        if self.absent:
            rank = self.absent[0]
            stood = stood_of(evidence, evidence.ranks[rank])
            facts = StoodApart(how="absent", waited=bool(waiting), stood=stood, ranks=(rank,), others=tuple(waiting))
            return Finding(kind=kind if waiting else FindingKind.OWN_CODE, facts=facts)
        if not waiting:
            return None
        if len(self.gone) > len(waiting):
            place = evidence.stood(evidence.ranks[waiting[0]])
            facts = StoodApart(how="alone", place=place, ranks=(waiting[0],), others=tuple(self.gone))
            return Finding(kind=FindingKind.WENT_ALONE, facts=facts)
        if self.gone:
            facts = StoodApart(how="gone", ranks=(self.gone[0],), others=tuple(waiting))
            return Finding(kind=FindingKind.LEFT_EARLY, facts=facts)
        common, odd = majority({rank: stood_of(evidence, evidence.ranks[rank]) for rank in waiting})
        if not odd:
            return None  # no majority: whose call is the wrong one cannot be told from where they stand
        stood, rest = stood_of(evidence, evidence.ranks[odd[0]]), tuple(rank for rank in waiting if rank != odd[0])
        facts = StoodApart(how="odd", stood=stood, common=common, ranks=odd[:1], others=rest)
        return Finding(kind=FindingKind.ELSEWHERE, facts=facts)


# -- threads that ended by an error: Python prints it, and the script goes on without what they would do


def find_ended_threads(ranks: Iterable[RankFacts]) -> list[Finding]:
    """A finding for each error by which threads ended, with the ranks whose threads they were."""
    alike: dict[ThreadError, list[ThreadRaised]] = defaultdict(list)
    for rank in ranks:
        for one in rank.threads:
            alike[_raised(one)].append(one)
    return [_thread(raised, ones) for raised, ones in alike.items()]


def _thread(raised: ThreadError, ones: Sequence[ThreadRaised]) -> Finding:
    others, lines = tuple(sorted({one.rank for one in ones})), tuple(one.at for one in ones)
    facts = ThreadEnded(raised=raised, count=len(ones), others=others, lines=lines)
    return Finding(kind=FindingKind.THREAD, facts=facts)


def _raised(one: ThreadRaised) -> ThreadError:
    return ThreadError(error=one.error.partition("\n")[0], at=one.at)
