"""Traffic between ranks and what each operation achieved, ready to be printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.operations import Operation, operation
from lab.trace.steps import Step
from lab.trace.traffic import matrix, operations
from lab.words import NONE, format_bytes, format_duration, format_rate

_MOST_ROWS = 40


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
    """A row for each operation and size, or each operation where sizes are too many.

    Cells: count, ranks, size, bytes sent, median time, total time, waited, algbw, busbw.
    """
    rows = operations(steps, by_size=True)
    if len(rows) > _MOST_ROWS:
        rows = operations(steps)
    return [
        (
            operation(row.op),
            [
                Cell(f"{row.count:,}", row.count),
                Cell(str(row.ranks) if row.ranks is not None else NONE, row.ranks or 0),
                Cell(format_bytes(row.size), row.size or 0),
                Cell(format_bytes(row.sent), row.sent),
                _cell(row.median_s, format_duration),
                _cell(row.total_s, format_duration),
                _cell(row.waited_s, format_duration),
                _cell(row.algbw, format_rate),
                _cell(row.busbw, format_rate),
            ],
        )
        for row in rows
    ]


def _cell(number: float | None, write: Callable[[float | None], str]) -> Cell:
    return Cell(write(number), -1 if number is None else number)
