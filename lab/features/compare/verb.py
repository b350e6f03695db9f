"""`lab diff`: what two runs did differently, or many runs and earlier ones of the same scenarios."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lab.cli import arguments as shared
from lab.cli.arguments import answer
from lab.errors import RecordError, UsageError
from lab.features.compare.compare import compare
from lab.features.compare.option import add_baseline, comparison
from lab.features.compare.view import diff_text
from lab.record.read import find_record
from lab.trace.read import open_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    before = parser.add_argument(
        "before",
        metavar="RUN1",
        nargs="?",
        help="name of a run, or how it begins or ends; with --baseline, of many runs",
    )
    after = parser.add_argument(
        "after", metavar="RUN2", nargs="?", help="the run to compare with it (default: the latest)"
    )
    for argument in (before, after):
        shared.completes(argument, "runs")
    add_baseline(parser)
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare them; needs no engine."""
    if arguments.baseline:
        return _many(arguments)
    if arguments.before is None:
        raise UsageError("lab diff needs the name of a run, or --baseline RUNS", "`lab runs` lists them")
    before = find_record(arguments.before, arguments.runs)
    after = find_record(arguments.after, arguments.runs)
    found = compare(before, after, (open_trace(before), open_trace(after)))
    return answer(
        arguments,
        lambda: {**asdict(found), "per_rank": found.per_rank, "identical": found.identical},
        lambda style: diff_text(found, style),
    )


def _many(arguments: argparse.Namespace) -> int:
    """Compare many runs with earlier ones; the exit code is 1 where anything is worse."""
    from lab.features.compare.view import baseline_text
    from lab.record.suite import earlier_records, find_suite

    if arguments.after is not None:
        raise UsageError(
            f"{arguments.before} and {arguments.after} are compared with each other, or with a baseline",
            "name the runs of now once: a folder, a suite or a run",
        )
    if arguments.before is not None:
        after = earlier_records(arguments.before, arguments.runs)
    else:
        try:
            after = list(find_suite(None, arguments.runs).records)
        except RecordError:  # no run was made together with others
            after = [find_record(None, arguments.runs)]
    found = comparison(arguments)(after)
    return answer(arguments, found.to_json, lambda style: baseline_text(found, style)) or found.exit_code
