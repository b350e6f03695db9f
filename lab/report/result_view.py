"""The whole result of a run for a person: verdict, ranks, notes."""

from __future__ import annotations

from lab.record.result import Result
from lab.report.attempts_view import attempts_text
from lab.report.style import Style
from lab.report.table import table_text
from lab.report.verdict import verdict_text
from lab.words import NONE, clip, format_duration, format_value

_LONGEST = 70
"""Letters of an error or a note."""


def result_text(result: Result, style: Style) -> str:
    """The verdict, then a row for each rank, then what the ranks noted."""
    parts = [verdict_text(result, style)]
    if result.ranks:
        rows = [
            [str(r.rank), r.node, r.ended or NONE, format_duration(r.duration_s), clip(r.error, 80)]
            for r in result.ranks
        ]
        parts.append(table_text(["rank", "node", "ended", "time", "error"], rows, style))
    notes = [
        [str(r.rank), name, format_value(value, _LONGEST)] for r in result.ranks for name, value in r.notes.items()
    ]
    if notes:
        parts.append(table_text(["rank", "note", "value"], notes, style))
    attempts = attempts_text(result, style)
    if attempts:
        parts.append(attempts)
    where = f"engine {result.engine}, cluster {result.cluster}, run {result.run}"
    parts.append(style.paint(where, "dim"))
    return "\n\n".join(parts)
