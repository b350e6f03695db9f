"""Rows of a lane: calls of a rank that overlap stand on different rows, in the same order on every timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from lab.trace.model import Call

MOST_ROWS = 6
"""Of a lane in a picture; what overlaps still more stands on the last one."""


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
