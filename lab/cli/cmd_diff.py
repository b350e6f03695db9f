"""`lab diff`: what two runs did differently."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.record.read import find_record
from lab.report.diff_view import diff_text
from lab.trace.compare import compare
from lab.trace.read import open_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    before = parser.add_argument("before", metavar="RUN1", help="name of a run, or how it begins or ends")
    after = parser.add_argument(
        "after", metavar="RUN2", nargs="?", help="the run to compare with it (default: the latest)"
    )
    for argument in (before, after):
        shared.completes(argument, "runs")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare them; needs no engine."""
    before = find_record(arguments.before, arguments.runs)
    after = find_record(arguments.after, arguments.runs)
    found = compare(before, after, (open_trace(before), open_trace(after)))
    return answer(
        arguments,
        lambda: {**asdict(found), "per_rank": found.per_rank, "identical": found.identical},
        lambda style: diff_text(found, style),
    )
