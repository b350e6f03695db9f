"""The whole result of a run for a person: verdict, ranks, notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.report.style import Style
from lab.report.table import table_text
from lab.report.verdict import verdict_text
from lab.words import NONE, format_duration, format_value

_LONGEST_NOTE = 70


def result_text(result: Mapping[str, Any], style: Style) -> str:
    """The verdict, then a row for each rank, then what the ranks noted.

    Args:
        result: as in `result.json`.
        style: how to paint it.
    """
    parts = [verdict_text(result, style)]
    if result["ranks"]:
        rows = [
            [str(r["rank"]), r["node"], _end(r), format_duration(r["duration_s"]), r["error"][:80]]
            for r in result["ranks"]
        ]
        parts.append(table_text(["rank", "node", "ended", "time", "error"], rows, style))
    notes = [
        [str(r["rank"]), name, format_value(value, _LONGEST_NOTE)]
        for r in result["ranks"]
        for name, value in r["notes"].items()
    ]
    if notes:
        parts.append(table_text(["rank", "note", "value"], notes, style))
    where = f"engine {result['engine']}, cluster {result['cluster']}, run {result['run']}"
    parts.append(style.paint(where, "dim"))
    return "\n\n".join(parts)


def _end(rank: Mapping[str, Any]) -> str:
    if rank["stopped"]:
        return "stopped"
    if rank["signal"]:
        return str(rank["signal"])
    return NONE if rank["exit_code"] is None else f"exit {rank['exit_code']}"
