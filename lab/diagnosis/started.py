"""Processes that a script started and that joined a process group: which of them are the ranks of the run.

A number alone tells no rank: several workers may each start a rank 0, and a script may start one after the other. So
those that met are taken together, and only those of one meeting are told as ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from lab.diagnosis.ends import end_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Finding, FindingKind, StartedByScript, group_ranks
from lab.diagnosis.wording import outlived_reason
from lab.node.messages.agent import Joined, worker_of
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record, Started, StartedRank
from lab.record.record_files import open_file, parse_line, read_lines

_GROUP = b'{"k":"group"'


def find_started(facts: RunFacts, record: Record) -> Started:
    """Say which are ranks: the last that met of those that the first worker started; none where workers met already.

    Workers that are in a group of as many ranks stay what they are, if nobody else says to be the same rank.
    """
    meetings = _meetings(facts.joined.values())
    own = {rank.rank: size for rank in facts.ranks if (size := _size_of_group(record, rank.rank))}
    able = [one for one in meetings if not own or _fits(one, own)]
    first = min((worker_of(joined.rank) for one in able for joined in one), default=0)
    able = [one for one in able if any(worker_of(joined.rank) == first for joined in one)]
    chosen = max(able, key=lambda one: one[0].time, default=[])
    ranks = [StartedRank(rank=j.said, node=j.node, worker=worker_of(j.rank), process=j.rank) for j in chosen]
    if chosen:
        ranks += [StartedRank(rank=one.rank, node=one.node, worker=one.rank) for one in facts.ranks if one.rank in own]
    return Started(
        ranks=tuple(sorted(ranks, key=lambda one: one.rank)),
        world_size=chosen[0].world_size if chosen else 0,
        aside=tuple(number for number in facts.joined if number not in {joined.rank for joined in chosen}),
    )


def _meetings(joined: Iterable[Joined]) -> list[list[Joined]]:
    """Those that met, in the order in which they came.

    All at one place are together, unless several workers started somebody who says to be the same rank.
    """
    places: dict[tuple[int, str], list[Joined]] = {}
    for one in sorted(joined, key=lambda one: one.time):
        places.setdefault((one.world_size, one.meeting), []).append(one)
    meetings: list[list[Joined]] = []
    for place in places.values():
        owners = {(one.said, worker_of(one.rank)) for one in place}
        together = len(owners) == len({rank for rank, _ in owners})
        for worker in {None} if together else {worker for _, worker in owners}:
            meetings += _turns(one for one in place if worker in (None, worker_of(one.rank)))
    return meetings


def _turns(place: Iterable[Joined]) -> list[list[Joined]]:
    """One group after the other at the same place: the next begins with the first that comes again."""
    turns: list[list[Joined]] = []
    for one in place:
        if not turns or any(one.said == other.said for other in turns[-1]):
            turns.append([])
        turns[-1].append(one)
    return turns


def _fits(meeting: Sequence[Joined], own: Mapping[int, int]) -> bool:
    """Whether workers that are in a group of their own, by its size, are likely to be in this one too."""
    return not {one.said for one in meeting} & own.keys() and set(own.values()) == {meeting[0].world_size}


def _size_of_group(record: Record, rank: int) -> int:
    """How many ranks the first group has that a worker was in; 0 where there is none."""
    with suppress(OSError, KeyError, TypeError):
        with open_file(record.path, f"{TRACE}/{rank_trace(rank)}") as file:
            first = next((line for line in read_lines(file) if line.startswith(_GROUP)), b"{}")
        return len(parse_line(first)["ranks"])
    return 0


def describe_outlived(evidence: Evidence) -> str:
    """The reason of a run that passed though ranks failed: the workers that had started them did not mind."""
    failed = [rank for rank in evidence.facts.ranks if rank.outlived and (rank.code or rank.signal)]
    first = min(failed, key=lambda rank: rank.raised or rank.ended or 0.0)
    end = end_of(evidence, first, brief=True)
    facts = evidence.facts
    return outlived_reason(len(facts.ranks), facts.duration_s, first.rank, first.node, end, len(failed) - 1)


def describe_started(record: Record) -> list[Finding]:
    """That the ranks of a run are no workers, or that there were others beside them."""
    started, facts = record.started(), list[StartedByScript]()
    if started is None:
        return []
    ranks = tuple(one.rank for one in started.ranks)
    by_worker = group_ranks({one.rank: one.worker for one in started.ranks if one.process is not None})
    if by_worker:
        facts.append(StartedByScript(by_worker={one: tuple(ours) for one, ours in by_worker.items()}, others=ranks))
    if started.aside:
        workers = tuple(sorted({worker_of(number) for number in started.aside}))
        facts.append(StartedByScript(aside=len(started.aside), aside_workers=workers, any_ranks=bool(ranks)))
    return [one.as_finding(FindingKind.STARTED) for one in facts]
