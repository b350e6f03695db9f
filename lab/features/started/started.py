"""Find which processes that a script started, and that joined a process group, are the ranks of the run.

A rank number alone does not identify a rank: several workers may each start a rank 0, and a script may start one after
the other. So processes that met are grouped, and only one such group counts as the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from lab.diagnosis.ends import end_of, make_culprit, raised_by
from lab.diagnosis.evidence import Evidence, Explained, Judgement
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.finding import End, Finding, FindingKind, Kind, ThreadError, Words, group_ranks
from lab.diagnosis.wording import full_name, render_end, render_raised
from lab.node.messages.agent import Joined, worker_of
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record, Started, StartedRank
from lab.record.record_files import open_file, parse_line, read_lines
from lab.words import format_count, format_duration, group_pairs, join_words, name_ranks

_GROUP = b'{"k":"group"'


def find_started(facts: RunFacts, record: Record) -> Started:
    """Return which processes are the ranks: those of the last meeting that the first worker started.

    If workers met in a group themselves, they stay ranks, unless another process uses the same rank number.
    """
    meetings = _meetings(facts.joined.values())
    own = {rank.rank: size for rank in facts.ranks if (size := _size_of_group(record, rank.rank))}
    able = [one for one in meetings if not own or _fits(one, own)]
    first = min((worker_of(joined.rank) for one in able for joined in one), default=0)
    able = [one for one in able if any(worker_of(joined.rank) == first for joined in one)]
    chosen = max(able, key=lambda one: one[0].time, default=[])
    ranks = [StartedRank(rank=j.claimed_rank, node=j.node, worker=worker_of(j.rank), process=j.rank) for j in chosen]
    if chosen:
        ranks += [StartedRank(rank=one.rank, node=one.node, worker=one.rank) for one in facts.ranks if one.rank in own]
    return Started(
        ranks=tuple(sorted(ranks, key=lambda one: one.rank)),
        world_size=chosen[0].world_size if chosen else 0,
        aside=tuple(number for number in facts.joined if number not in {joined.rank for joined in chosen}),
    )


def _meetings(joined: Iterable[Joined]) -> list[list[Joined]]:
    """Return the processes that met, in the order in which they joined.

    Processes at one address belong together, unless several workers started one with the same rank number.
    """
    in_order = sorted(joined, key=lambda one: one.time)
    meetings: list[list[Joined]] = []
    for joiners in group_pairs(((one.world_size, one.meeting), one) for one in in_order).values():
        owners = {(one.claimed_rank, worker_of(one.rank)) for one in joiners}
        together = len(owners) == len({rank for rank, _ in owners})
        for worker in {None} if together else {worker for _, worker in owners}:
            meetings += _turns(one for one in joiners if worker in (None, worker_of(one.rank)))
    return meetings


def _turns(joiners: Iterable[Joined]) -> list[list[Joined]]:
    """Split processes at one address into consecutive groups: a repeated rank number begins the next group."""
    turns: list[list[Joined]] = []
    for one in joiners:
        if not turns or any(one.claimed_rank == other.claimed_rank for other in turns[-1]):
            turns.append([])
        turns[-1].append(one)
    return turns


def _fits(meeting: Sequence[Joined], own: Mapping[int, int]) -> bool:
    """Return whether workers in a group of their own, by its size, probably belong to this meeting."""
    return not {one.claimed_rank for one in meeting} & own.keys() and set(own.values()) == {meeting[0].world_size}


def _size_of_group(record: Record, rank: int) -> int:
    """Return the number of ranks in the first group of a worker; 0 if there is none."""
    with suppress(OSError, KeyError, TypeError):
        with open_file(record.path, f"{TRACE}/{rank_trace(rank)}") as file:
            first = next((line for line in read_lines(file) if line.startswith(_GROUP)), b"{}")
        return len(parse_line(first)["ranks"])
    return 0


def outlived_reason(evidence: Evidence) -> str:
    """Return the reason of a run that passed although ranks failed, because their workers ended as expected."""
    facts = evidence.facts
    failed = [rank for rank in facts.ranks if rank.outlived and (rank.code or rank.signal)]
    first = min(failed, key=lambda rank: rank.raised or rank.ended or 0.0)
    ranks, duration = format_count(len(facts.ranks), "rank"), format_duration(facts.duration_s)
    began = f"the workers that started {ranks} ended as expected in {duration}"
    failure = f"{full_name(first.rank, first.node)} {render_end(end_of(evidence, first, brief=True))}"
    return f"{began}, though {failure}{f' (and {len(failed) - 1} more)' if len(failed) > 1 else ''}"


# -- findings


class StartedKind(Kind):
    """The kinds of findings of this feature."""

    THREAD = "thread", 7
    STARTED = "started", 9


class StartedByScript(Finding):
    """Processes that scripts started and that joined a process group."""

    kind: Kind = StartedKind.STARTED
    by_worker: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By worker: the ranks that it started."""
    aside: int = 0
    """Number of processes that met in other groups."""
    aside_workers: tuple[int, ...] = ()
    any_ranks: bool = True

    def render(self) -> Words:
        """Name the ranks that each worker started, or the processes that met elsewhere."""
        if self.by_worker:
            who = join_words(f"{name_ranks(ranks)} by worker {worker}" for worker, ranks in self.by_worker.items())
            return (
                f"the script started the ranks itself: {who}",
                "Their output is in the log of their worker (lab logs --rank, with the number of the worker), "
                "unless the script gave them separate pipes.",
            )
        where = "other groups" if self.any_ranks else "separate groups"
        workers = join_words(f"worker {worker}" for worker in self.aside_workers)
        met = f"{workers} started {format_count(self.aside, 'more process', 'more processes')}, which formed {where}"
        return f"{met} and are not ranks; their calls are in trace/process*.jsonl"


class ThreadEnded(Finding):
    """Threads that ended with an error."""

    kind: Kind = StartedKind.THREAD
    raised: ThreadError
    count: int = 1

    def render(self) -> Words:
        """Name the ranks of the threads, and their error."""
        ranks = len(self.others)
        threads = (
            "a thread" if self.count == 1 else "threads" if self.count == ranks else format_count(self.count, "thread")
        )
        them = "it" if self.count == 1 else "them"
        ended = f"{threads} of {name_ranks(self.others)} {render_raised(self.raised)}"
        return f"{ended}, and the script continued without {them}"


class WorkerFailed(Finding):
    """A worker that failed after its script had started the ranks."""

    kind: Kind = FindingKind.FAILED
    worker: int
    node: str
    end: End
    started: tuple[int, ...] = ()

    def render(self) -> Words:
        """Describe the failure of the worker."""
        whose = f", whose script started {name_ranks(self.started)}," if self.started else ""
        return f"worker {self.worker} ({self.node}){whose} {render_end(self.end)}"


def blame_starter(evidence: Evidence, starter: RankFacts) -> Judgement:
    """Return a judgement on a worker that failed by itself after its script had started the ranks."""
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.parent == starter.rank)
    end = end_of(evidence, starter)
    finding = WorkerFailed(worker=starter.rank, node=starter.node, end=end, started=ranks, others=ranks)
    culprit = replace(make_culprit(starter, render_end(end)), rank=None)
    return Judgement(verdict="failed", reason=finding.headline, culprit=culprit, findings=(finding,))


def explain_started(run: Explained) -> list[Finding]:
    """Return ended threads, and which processes of scripts were the ranks or met in other groups."""
    started, findings = run.evidence.record.started(), find_ended_threads(run.evidence.facts.ranks)
    if started is None or not run.evidence.facts.joined:
        return findings
    ranks = tuple(one.rank for one in started.ranks)
    if by_worker := group_ranks({one.rank: one.worker for one in started.ranks if one.process is not None}):
        findings.append(StartedByScript(by_worker={one: tuple(ours) for one, ours in by_worker.items()}, others=ranks))
    if started.aside:
        workers = tuple(sorted({worker_of(number) for number in started.aside}))
        findings.append(StartedByScript(aside=len(started.aside), aside_workers=workers, any_ranks=bool(ranks)))
    return findings


def find_ended_threads(ranks: Iterable[RankFacts]) -> list[Finding]:
    """Return a finding for each error that ended threads, with the ranks of these threads."""
    alike = group_pairs((raised_by(one), one) for rank in ranks for one in rank.threads)
    findings = list[Finding]()
    for raised, ones in alike.items():
        others, lines = tuple(sorted({one.rank for one in ones})), tuple(one.at for one in ones)
        findings.append(ThreadEnded(raised=raised, count=len(ones), others=others, lines=lines))
    return findings
