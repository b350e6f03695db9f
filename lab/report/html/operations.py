"""Traffic between ranks and what each operation achieved, ready to be printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.spec.units import format_bytes, format_duration
from lab.trace.steps import Step
from lab.trace.traffic import matrix, operations

_UNITS = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
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


def operation_rows(steps: Sequence[Step]) -> list[tuple[str, list[Cell]]]:
    """A row for each operation and size, or each operation where sizes are too many.

    Cells: count, ranks, size, bytes sent, median time, total time, waited, algbw, busbw.
    """
    rows = operations(steps, by_size=True)
    if len(rows) > _MOST_ROWS:
        rows = operations(steps)
    return [
        (
            row.op,
            [
                Cell(f"{row.count:,}", row.count),
                Cell(str(row.ranks) if row.ranks is not None else "–", row.ranks or 0),
                Cell(format_bytes(row.size) if row.size is not None else "–", row.size or 0),
                Cell(format_bytes(row.sent), row.sent),
                _time(row.median_s),
                _time(row.total_s),
                _time(row.waited_s),
                _rate(row.algbw),
                _rate(row.busbw),
            ],
        )
        for row in rows
    ]


def _time(seconds: float | None) -> Cell:
    return Cell("–", -1) if seconds is None else Cell(format_duration(seconds), seconds)


def _rate(rate: float | None) -> Cell:
    """Bandwidth in powers of 1000, as nccl-tests has it."""
    if rate is None:
        return Cell("–", -1)
    unit = next((unit for unit in ("T", "G", "M", "k") if rate >= _UNITS[unit]), "")
    return Cell(f"{rate / _UNITS[unit]:.3g} {unit}B/s", rate)
