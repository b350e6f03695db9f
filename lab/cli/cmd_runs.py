"""`lab runs`: every run on record."""

from __future__ import annotations

import argparse

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.record.read import list_records
from lab.record.result import Result
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip, format_duration

_LONGEST_REASON = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=shared.positive, metavar="N", help="only the latest N")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them, the latest last."""
    results = [record.result() for record in list_records(arguments.runs)]
    if arguments.last:
        results = results[-arguments.last :]
    return answer(
        arguments,
        lambda: [result.to_json() for result in results],
        lambda style: _table(results, style) if results else f"no runs in {arguments.runs}",
    )


def _table(results: list[Result], style: Style) -> str:
    rows = []
    for result in results:
        ranks, took = str(len(result.ranks)), format_duration(result.duration_s)
        rows.append([result.run, result.verdict, result.engine, ranks, took, clip(result.reason, _LONGEST_REASON)])
    return table_text(["run", "verdict", "engine", "ranks", "time", "reason"], rows, style)
