"""Traffic between ranks and what each operation achieved, ready to be printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.operations import Operation, operation
from lab.trace.steps import Step
from lab.trace.traffic import matrix, operations
from lab.words import NONE, format_bytes, format_duration, format_rate

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


def matrix_view(steps: Sequence[Step], ranks: Sequence[int]) -> list[tuple[int, list[Cell]]]:
    """A row for each sender with a cell for each receiver; empty where nothing was sent at all."""
    size = max(ranks, default=-1) + 1
    rows = matrix(steps, size)
    most = max((number for row in rows for number in row), default=0)
    if not most:
        return []
    return [
        (rank, [Cell(format_bytes(rows[rank][to]) if rows[rank][to] else "·", rows[rank][to], rows[rank][to] / most)
                for to in ranks])
        for rank in ranks
    ]  # fmt: skip


def operation_rows(steps: Sequence[Step]) -> list[tuple[Operation, list[Cell]]]:
    """A row for each operation and size, or each operation where sizes are too many."""
    rows = operations(steps, by_size=True)
    if len(rows) > _MOST_ROWS:
        rows = operations(steps)
    return [(operation(row.op), [_cell(getattr(row, key), write) for key, write in _CELLS.items()]) for row in rows]


def _cell(number: float | None, write: Callable[[Any], str]) -> Cell:
    return Cell(NONE, -1) if number is None else Cell(write(number), number)
