"""Tables of a page: attempts, ranks, operations, and what the run ran on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from lab.features.traffic.traffic import matrix, operations
from lab.operations import Operation, operation
from lab.plan.plan import WorkerPlan
from lab.record.layout import REPORT
from lab.record.read import Record
from lab.record.result import Expectation, RankResult, Result
from lab.report.style import VERDICTS
from lab.report.table import MANY, alike, form_of, nearly_alike, neighbours, range_text, spans_text
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration, format_rate, format_value, listing, name_nodes

_MOST_PAGES = 20


def with_pages(run: Record) -> list[Record]:
    """The earlier attempts of a run that have pages of their own once it has one: the last of them."""
    return [*run.earlier_attempts().values()][-_MOST_PAGES:]


def attempt_rows(record: Record, page: Path) -> list[dict[str, Any]]:
    """All attempts of the run; empty where there was but one.

    Args:
        record: that of the run, or of one of its attempts.
        page: where the page will be; it leads to others only from its place in the record.
    """
    run, own = record.run_of_attempt or record, page == record.path / REPORT
    paged = {run.path, *(earlier.path for earlier in with_pages(run))}
    rows = []
    for attempt in run.result().attempts:
        place = attempt.path or run.path
        here = place == record.path
        link = quote(os.path.relpath(place / REPORT, page.parent)) if own and not here and place in paged else ""
        rows.append(
            {
                "attempt": attempt,
                "tone": VERDICTS[attempt.verdict],
                "here": here,
                "link": link,
                "nodes": listing(attempt.nodes),
            }
        )
    return rows


def facts(record: Record, result: Result, trace: Trace) -> list[tuple[str, str]]:
    """Name and value of everything that holds for the whole run; what is not known is left out."""
    plan = record.plan()
    ranks = [rank for rank in trace.ranks.values() if rank.recorder]
    versions = sorted({rank.torch for rank in ranks if rank.torch})
    recorders = sorted({rank.recorder for rank in ranks})
    error = f"± {format_duration(trace.clocks.error_s)}" if ranks else ""
    rows = [
        ("engine", result.engine),
        ("cluster", result.cluster),
        ("nodes", plan.nnodes),
        ("workers on each", plan.nproc_per_node),
        ("rendezvous", f"{plan.master_addr}:{plan.master_port}" if plan.master_addr else ""),
        ("start", {True: "cold: fresh interpreters", False: "warm: forked from the agents", None: ""}[plan.cold]),
        ("time limit", format_duration(plan.timeout_s) if plan.timeout_s is not None else ""),
        ("torch", ", ".join(versions)),
        ("recorder", ", ".join(recorders) or "none: this run has no trace"),
        ("clocks agree within", error),
        ("record", str(record.path)),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def variables(record: Record) -> tuple[list[tuple[str, str]], list[str], list[tuple[int, list[str]]]]:
    """Environment variables that all workers share, names of those that differ, and their values by rank."""
    workers = record.plan().workers
    if not workers:
        return [], [], []
    names = sorted({name for worker in workers for name in worker.env})
    shared = [name for name in names if len({worker.env.get(name) for worker in workers}) == 1]
    differing = [name for name in names if name not in shared]
    rows = [(worker.rank, [worker.env.get(name, "") for name in differing]) for worker in workers]
    return [(name, workers[0].env[name]) for name in shared], differing, rows


_MOST_ROWS = 40
_CELLS: dict[str, Callable[[Any], str]] = {
    "count": "{:,}".format,
    "ranks": str,
    **dict.fromkeys(("size", "sent"), format_bytes),
    **dict.fromkeys(("median_s", "total_s", "waited_s"), format_duration),
    **dict.fromkeys(("algbw", "busbw"), format_rate),
}
"""What the table shows of a row, in this order, and how it is written."""


@dataclass(frozen=True)
class Cell:
    """A number of the page: what is read and what a column is sorted by."""

    text: str
    value: float
    heat: float = 0.0
    """From 0 to 1."""


def matrix_view(steps: Sequence[Step], ranks: Sequence[int]) -> list[tuple[int | str, list[Cell]]] | None:
    """A row for each sender with a cell for each receiver; empty where nothing was sent at all, None if not counted.

    Of many ranks, neighbours share a row and a column, which are named `0-7`.
    """
    size = max(ranks, default=-1) + 1
    blocks = neighbours(ranks)
    names = [block[0] if len(block) == 1 else f"{block[0]}-{block[-1]}" for block in blocks]
    sent = matrix(steps, size)
    if sent is None:
        return None
    rows = [[sum(sent[i][j] for i in block for j in others) for others in blocks] for block in blocks]
    most = max((number for row in rows for number in row), default=0)
    if not most:
        return []
    return [
        (name, [Cell(format_bytes(number) if number else "·", number, number / most) for number in row])
        for name, row in zip(names, rows, strict=True)
    ]


def operation_rows(steps: Sequence[Step]) -> list[tuple[Operation, list[Cell]]]:
    """A row for each operation and size, or each operation where sizes are too many."""
    rows = operations(steps, by_size=True)
    if len(rows) > _MOST_ROWS:
        rows = operations(steps)
    return [(operation(row.op), [_cell(getattr(row, key), write) for key, write in _CELLS.items()]) for row in rows]


def _cell(number: float | None, write: Callable[[Any], str]) -> Cell:
    return Cell(NONE, -1) if number is None else Cell(write(number), number)


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
