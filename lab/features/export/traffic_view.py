"""The communication of a run in numbers: a row for each operation, and who sent how much to whom."""

from __future__ import annotations

from collections.abc import Sequence

from lab.features.traffic.traffic import OpRow, matrix, operations
from lab.report.style import Style
from lab.report.table import alike, range_text, table_text
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import format_bytes, format_duration, format_rate, plural

_WIDEST_MATRIX = 16
_MOST_PAIRS = 4
_SIZES = (
    "bytes, algbw and busbw as nccl-tests counts them, time from when the last rank entered to when the last was done"
)
_LOGICAL = (
    "bytes from rank (row) to rank (column), as if each went straight to where it is needed; "
    "how a backend routes them is not visible"
)


def traffic_text(run: str, trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """The tables, and what the trace lacks."""
    collectives = sum(1 for step in steps if not step.message)
    messages = len(steps) - collectives
    head = (
        f"{plural(collectives, 'collective')} and {plural(messages, 'message')} of {plural(trace.world_size, 'rank')}"
    )
    parts = [f"{style.paint(run, 'bold')}: {head}"]
    if steps:
        parts += [_operations(steps, style), _matrix(steps, trace.world_size, style)]
    if trace.problems:
        parts.append("\n".join(style.paint(problem, "yellow") for problem in trace.problems))
    return "\n\n".join(parts)


def _operations(steps: Sequence[Step], style: Style) -> str:
    header = ["operation", "count", "bytes", "median", "total", "waited", "algbw", "busbw"]
    rows = []
    for row in operations(steps):
        total = format_duration(row.total_s if row.finished else None)
        times = [format_duration(row.median_s), total, format_duration(row.waited_s)]
        rows.append([row.op, _count(row), format_bytes(row.bytes), *times, *map(format_rate, (row.algbw, row.busbw))])
    return f"{table_text(header, rows, style)}\n{style.paint(_SIZES, 'dim')}"


def _count(row: OpRow) -> str:
    return str(row.count) if row.finished == row.count else f"{row.count}, finished {row.finished}"


def _pairs(pairs: Sequence[int], world_size: int) -> str:
    """Pairs of ranks by their numbers in the matrix: a few by themselves, many by how many they are."""
    named = [f"{i} → {j}" for i, j in (divmod(pair, world_size) for pair in pairs)]
    return ", ".join(named) if len(named) <= _MOST_PAIRS else f"{named[0]}, … {named[-1]}: {plural(len(named), 'pair')}"


def _matrix(steps: Sequence[Step], world_size: int, style: Style) -> str:
    sent = matrix(steps, world_size)
    if sent is None:
        return style.paint(f"who sent how much to whom is left out: {world_size:,} ranks are too many pairs", "dim")
    if world_size > _WIDEST_MATRIX:
        pairs = alike((i * world_size + j, size) for i, row in enumerate(sent) for j, size in enumerate(row) if size)
        pairs.sort(key=lambda one: (len(one[0]), -one[1]))  # what few pairs have, first
        rows = [[_pairs(ours, world_size), format_bytes(size)] for ours, size in pairs[:_WIDEST_MATRIX]]
        if len(pairs) > _WIDEST_MATRIX:
            left = sum(len(ours) for ours, _ in pairs[_WIDEST_MATRIX:])
            rows.append(
                [
                    f"{plural(left, 'other pair')}",
                    range_text((size for _, size in pairs[_WIDEST_MATRIX:]), format_bytes),
                ]
            )
        header = ["from → to", "bytes each"]
    else:
        rows = [[str(i), *map(format_bytes, row), format_bytes(sum(row))] for i, row in enumerate(sent)]
        header = ["from \\ to", *map(str, range(world_size)), "sent"]
    return f"{table_text(header, rows, style)}\n{style.paint(_LOGICAL, 'dim')}"
