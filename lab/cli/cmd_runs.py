"""`lab runs`: every run on record."""

from __future__ import annotations

import argparse
import json
import sys

from lab.cli import arguments as shared
from lab.record.read import list_records
from lab.report.style import style_for
from lab.report.table import table_text
from lab.words import clip, format_duration

_LONGEST_REASON = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab runs` takes."""
    parser.add_argument("--last", type=shared.positive, metavar="N", help="only the latest N")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them, the latest last."""
    results = [record.result() for record in list_records(arguments.runs)]
    if arguments.last:
        results = results[-arguments.last :]
    if arguments.json:
        print(json.dumps([result.to_json() for result in results]))
        return 0
    if not results:
        print(f"no runs in {arguments.runs}")
        return 0
    style = style_for(sys.stdout)
    rows = []
    for result in results:
        ranks, took = str(len(result.ranks)), format_duration(result.duration_s)
        rows.append([result.run, result.verdict, result.engine, ranks, took, clip(result.reason, _LONGEST_REASON)])
    print(table_text(["run", "verdict", "engine", "ranks", "time", "reason"], rows, style))
    return 0
