"""Lanes of a timeline: which ranks share one, and in which row of a lane a call is; the same on every timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from lab.diagnosis.finding import Finding
from lab.record.result import Result
from lab.report.table import MANY, group_equal
from lab.trace.model import Call, Trace

MOST_ROWS = 6
"""Limit for a lane in a picture; calls that overlap even more share the last row."""


_FEW = 4
"""A sentence that names at most this many ranks is about ranks that stand out."""


def group_neighbours(ranks: Sequence[int]) -> list[Sequence[int]]:
    """Group consecutive ranks into blocks of equal size, so that there are at most `MANY` blocks."""
    block_size = 1
    while len(ranks) > MANY * block_size:
        block_size *= 2
    return [ranks[first : first + block_size] for first in range(0, len(ranks), block_size)]


def lanes_of(
    ranks: Sequence[int], traces: Sequence[Trace], results: Sequence[Result], findings: Sequence[Finding] = ()
) -> list[list[int]]:
    """Return the ranks of each lane: one per rank; of many ranks, those with the same calls and end share one.

    Args:
        ranks: All ranks to show, in order.
        traces: The trace of the run, or the traces of the runs to compare.
        results: The results of the same runs. A culprit keeps its own lane.
        findings: The findings about the run; the ranks of a finding keep their own lanes if they are few.

    Returns:
        Lanes in the order of their first ranks, at most twice `MANY`. If hardly any two ranks are alike, consecutive
        ranks share a lane.
    """
    if len(ranks) <= MANY:
        return [[rank] for rank in ranks]
    named = [result.culprit.rank for result in results if result.culprit is not None]
    named += [rank for finding in findings if len(finding.ranks) <= _FEW for rank in finding.ranks]
    separate = [rank for rank in dict.fromkeys(named) if rank is not None and rank in ranks][:MANY]
    others = [rank for rank in ranks if rank not in separate]
    ends = [{rank.rank: rank.ended for rank in result.ranks} for result in results]
    histories = (
        (rank, (*(end.get(rank) for end in ends), *(_call_history(trace, rank) for trace in traces))) for rank in others
    )
    groups = [numbers for numbers, _ in group_equal(histories)]
    if len(groups) > MANY:
        groups = [list(block) for block in group_neighbours(others)]
    return sorted(groups + [[rank] for rank in separate])


def _call_history(trace: Trace, rank: int) -> tuple[tuple[str, str, str], ...]:
    """Return what a rank called, where, and how each call ended."""
    rank_trace = trace.ranks.get(rank)
    return tuple((call.op, call.source, call.state) for call in rank_trace.calls) if rank_trace is not None else ()


def rows_of(calls: Sequence[Call]) -> list[int]:
    """Return the row of each call, from 0; a call that never ended occupies its row until the end."""
    return lay_rows(((call.begin, math.inf if call.end is None else call.end) for call in calls), MOST_ROWS)


def lay_rows(
    spans: Iterable[tuple[float, float]], limit: float = math.inf, *, fits_first: Callable[[int], bool] | None = None
) -> list[int]:
    """Return the row of each span: the first one that is free.

    Args:
        spans: Beginning and end of each, in the order in which they begin.
        limit: The maximum number of rows.
        allows_first_row: Whether the span with this index may be in the first row; None allows it for all spans.
    """
    free: list[float] = [-math.inf] if fits_first else []
    rows = []
    for index, (begin, end) in enumerate(spans):
        lowest = 1 if fits_first is not None and not fits_first(index) else 0
        row = next((row for row in range(lowest, len(free)) if free[row] <= begin), len(free))
        if row == len(free) < limit:
            free.append(end)
        row = min(row, len(free) - 1)
        free[row] = max(free[row], end)
        rows.append(row)
    return rows
