"""Traffic between ranks and what each operation achieved, ready to be printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.operations import Operation, operation
from lab.report.alike import neighbours
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
