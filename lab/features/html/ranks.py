"""Tables of ranks: how each ended, where it stood, what it noted; of many ranks, those that are alike share a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.plan.plan import WorkerPlan
from lab.record.result import Expectation, RankResult
from lab.report.alike import MANY, alike, form_of, nearly_alike, range_text, spans_text
from lab.words import format_duration, format_value, name_nodes

_LONGEST = 2000


class WorkerRow(NamedTuple):
    """How ranks ended."""

    ranks: Sequence[int]
    nodes: str
    local_ranks: str
    ended: str
    bad: bool
    time: str
    error: str
    """That of the first of them."""


def worker_rows(workers: Sequence[WorkerPlan], results: Sequence[RankResult]) -> list[WorkerRow]:
    """A row for each rank; of many, for all that ended alike, with errors that differ in numbers at most."""
    found = {rank.rank: rank for rank in results}
    planned = {worker.rank: worker for worker in workers}
    ranks = {rank: found.get(rank, RankResult(rank=rank)) for rank in planned}
    kinds = alike((rank, (one.ended, _bad(one), form_of(one.error))) for rank, one in ranks.items())
    groups = [numbers for numbers, _ in kinds] if len(ranks) > MANY else [[rank] for rank in ranks]
    return [
        WorkerRow(
            ranks=numbers,
            nodes=name_nodes(planned[rank].node for rank in numbers),
            local_ranks=spans_text({planned[rank].local_rank for rank in numbers}),
            ended=ranks[numbers[0]].ended,
            bad=_bad(ranks[numbers[0]]),
            time=range_text((ranks[rank].duration_s for rank in numbers), format_duration),
            error=ranks[numbers[0]].error,
        )
        for numbers in groups
    ]


def _bad(rank: RankResult) -> bool:
    return not rank.stopped and bool(rank.error or rank.signal or rank.exit_code)


def stack_rows(results: Sequence[RankResult]) -> list[tuple[list[int], str]]:
    """Stacks, each with the ranks that stood so: of many ranks once, and those of the fewest first."""
    stacks = [(rank.rank, rank.stack) for rank in results if rank.stack]
    if len(stacks) <= MANY:
        return [([rank], stack) for rank, stack in stacks]
    texts = dict(stacks)
    groups = alike((rank, form_of(stack)) for rank, stack in stacks)
    return [(ranks, texts[ranks[0]]) for ranks, _ in sorted(groups, key=lambda group: len(group[0]))]


def note_rows(results: Sequence[RankResult]) -> list[tuple[list[int], str, str]]:
    """Ranks, name and value of notes; of many ranks once, and of values that differ in their numbers only some."""
    noted = [
        (rank.rank, (name, format_value(value, _LONGEST))) for rank in results for name, value in rank.notes.items()
    ]
    if len(results) <= MANY:
        return [([rank], name, value) for rank, (name, value) in noted]
    shown = nearly_alike(alike(noted), lambda one: (one[0], form_of(one[1])))
    return [(ranks, name, f"… {more} other values" if more else value) for ranks, (name, value), more in shown]


def expectation_rows(expectations: Sequence[Expectation]) -> list[tuple[list[int], Expectation]]:
    """Expectations, each with the ranks that it is about; of many of them, what is the same of several once."""
    if len(expectations) <= MANY:
        return [([one.rank or 0], one) for one in expectations]
    groups = alike((at, (one.what, one.met, repr(one.expected), repr(one.got))) for at, one in enumerate(expectations))
    return [([expectations[at].rank or 0 for at in places], expectations[places[0]]) for places, _ in groups]
