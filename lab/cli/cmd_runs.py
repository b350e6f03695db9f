"""`lab runs`: every run on record."""

from __future__ import annotations

import argparse
from typing import Any

from lab.cli import arguments as shared
from lab.record.read import Record, list_records
from lab.record.result import Result
from lab.report.style import Style, table_text
from lab.words import clip_end, format_bytes, format_count, format_duration

_LONGEST_REASON = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=shared.positive, metavar="N", help="list only the latest N")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """List the runs, the latest last."""
    records = list_records(arguments.runs)[-(arguments.last or 0) :]
    entries = [(record, record.result_or_refusal(), record.size_bytes()) for record in records]
    return shared.print_answer(
        arguments,
        lambda: [_json(*one) for one in entries],
        lambda style: _table(entries, style) if entries else f"no runs in {arguments.runs}",
    )


def _json(record: Record, result: Result, size_bytes: int) -> dict[str, Any]:
    return {**result.to_json(), "size_bytes": size_bytes, "in_progress": record.in_progress}


def _table(entries: list[tuple[Record, Result, int]], style: Style) -> str:
    rows = []
    for record, result, size_bytes in entries:
        ranks, took = str(len(result.ranks or record.readable_plan().workers)), format_duration(result.duration_s)
        shown = result.verdict, clip_end(result.reason, _LONGEST_REASON)
        verdict, reason = ("running", "") if record.in_progress else shown
        rows.append([result.run, verdict, result.engine, ranks, took, format_bytes(size_bytes), reason])
    rows.append([*[""] * 5, format_bytes(sum(size for _, _, size in entries)), format_count(len(entries), "run")])
    return table_text(["run", "verdict", "engine", "ranks", "time", "size", "reason"], rows, style)
