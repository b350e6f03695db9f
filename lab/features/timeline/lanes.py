"""Lanes of a timeline: which ranks share one, and on which of its rows a call stands; the same on every timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from lab.diagnosis.finding import Finding
from lab.record.result import Result
from lab.report.table import MANY, group_equal
from lab.trace.model import Call, Trace

MOST_ROWS = 6
"""Of a lane in a picture; what overlaps still more stands on the last one."""


_FEW = 4
"""A sentence that names so many ranks at most speaks of those that stand out."""


def neighbours(ranks: Sequence[int]) -> list[Sequence[int]]:
    """Ranks that follow each other put together, so many of them that at most `MANY` blocks come out."""
    each = 1
    while len(ranks) > MANY * each:
        each *= 2
    return [ranks[first : first + each] for first in range(0, len(ranks), each)]


def lanes_of(
    ranks: Sequence[int], traces: Sequence[Trace], results: Sequence[Result], findings: Sequence[Finding] = ()
) -> list[list[int]]:
    """The ranks of each lane: each has its own, but of many those share one that called the same and ended alike.

    Args:
        ranks: all that are shown, in order.
        traces: of the run, or of those that are compared.
        results: of the same runs. A culprit keeps a lane of its own.
        findings: what is said of the run; so do the ranks whose doing it is, where these are few.

    Returns:
        Lanes in the order of their first ranks, at most twice `MANY`: where hardly any two ranks are alike, those that
        follow each other share one.
    """
    if len(ranks) <= MANY:
        return [[rank] for rank in ranks]
    named = [result.culprit.rank for result in results if result.culprit is not None]
    named += [rank for finding in findings if len(finding.ranks) <= _FEW for rank in finding.ranks]
    alone = [rank for rank in dict.fromkeys(named) if rank is not None and rank in ranks][:MANY]
    others = [rank for rank in ranks if rank not in alone]
    ends = [{rank.rank: rank.ended for rank in result.ranks} for result in results]
    did = ((rank, (*(end.get(rank) for end in ends), *(_calls(trace, rank) for trace in traces))) for rank in others)
    groups = [numbers for numbers, _ in group_equal(did)]
    if len(groups) > MANY:
        groups = [list(block) for block in neighbours(others)]
    return sorted(groups + [[rank] for rank in alone])


def _calls(trace: Trace, rank: int) -> tuple[tuple[str, str, str], ...]:
    """What a rank called, where, and what came of it."""
    own = trace.ranks.get(rank)
    return tuple((call.op, call.source, call.state) for call in own.calls) if own is not None else ()


def rows_of(calls: Sequence[Call]) -> list[int]:
    """The row of each call, from 0; what never ended keeps its row."""
    return lay_rows(((call.begin, math.inf if call.end is None else call.end) for call in calls), MOST_ROWS)


def lay_rows(
    spans: Iterable[tuple[float, float]], most: float = math.inf, *, first_takes: Callable[[int], bool] | None = None
) -> list[int]:
    """The row of each span: the first that is free.

    Args:
        spans: beginning and end of each, in the order in which they begin.
        most: how many rows there may be.
        first_takes: whether the span of an index may stand on the first row; None: each may.
    """
    free: list[float] = [-math.inf] if first_takes else []
    rows = []
    for index, (begin, end) in enumerate(spans):
        lowest = 1 if first_takes is not None and not first_takes(index) else 0
        row = next((row for row in range(lowest, len(free)) if free[row] <= begin), len(free))
        if row == len(free) < most:
            free.append(end)
        row = min(row, len(free) - 1)
        free[row] = max(free[row], end)
        rows.append(row)
    return rows
