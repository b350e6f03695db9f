"""The whole result of a run for a person: verdict, ranks, notes."""

from __future__ import annotations

from lab.record.result import Result
from lab.report.alike import MANY, alike, form_of, nearly_alike, range_text, spans_text
from lab.report.steps_view import attempts_text
from lab.report.style import Style
from lab.report.table import table_text
from lab.report.verdict import verdict_text
from lab.words import NONE, clip, format_duration, format_value, name_nodes

_LONGEST = 70
"""Letters of an error or a note."""


def result_text(result: Result, style: Style) -> str:
    """The verdict, then a row for each rank, then what the ranks noted."""
    parts = [verdict_text(result, style)]
    if result.ranks:
        rows = (
            _rows_of_many(result)
            if len(result.ranks) > MANY
            else [
                [str(r.rank), r.node, r.ended or NONE, format_duration(r.duration_s), clip(r.error, 80)]
                for r in result.ranks
            ]
        )
        parts.append(table_text(["rank", "node", "ended", "time", "error"], rows, style))
    notes = [
        [str(r.rank), name, format_value(value, _LONGEST)] for r in result.ranks for name, value in r.notes.items()
    ]
    if len(result.ranks) > MANY:
        notes = _notes_of_many(result)
    if notes:
        parts.append(table_text(["rank", "note", "value"], notes, style))
    attempts = attempts_text(result, style)
    if attempts:
        parts.append(attempts)
    where = f"engine {result.engine}, cluster {result.cluster}, run {result.run}"
    parts.append(style.paint(where, "dim"))
    return "\n\n".join(parts)


def _rows_of_many(result: Result) -> list[list[str]]:
    """Rows of ranks that ended alike, with errors that differ in numbers at most; the first error stands for all."""
    ranks = {rank.rank: rank for rank in result.ranks}
    rows = []
    for numbers, (ended, _) in alike((n, (rank.ended, form_of(rank.error))) for n, rank in ranks.items()):
        nodes, times = (ranks[n].node for n in numbers), (ranks[n].duration_s for n in numbers)
        error = clip(ranks[numbers[0]].error, 80)
        rows.append([spans_text(numbers), name_nodes(nodes), ended or NONE, range_text(times, format_duration), error])
    return rows


def _notes_of_many(result: Result) -> list[list[str]]:
    """Rows of notes with what all of these ranks noted; of values that differ in numbers only, some."""
    noted = ((r.rank, (name, format_value(value, _LONGEST))) for r in result.ranks for name, value in r.notes.items())
    rows = []
    for ranks, (name, value), more in nearly_alike(alike(noted), lambda one: (one[0], form_of(one[1]))):
        told = f"… {more} other values: lab show {result.run} --json" if more else value
        rows.append([spans_text(ranks), name, told])
    return sorted(rows, key=lambda row: [*dict.fromkeys(row[1] for row in rows)].index(row[1]))
