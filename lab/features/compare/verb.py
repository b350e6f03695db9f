"""`lab diff` and `lab report --diff`: compare two runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer
from lab.cli.call import Command, Parser
from lab.errors import UsageError
from lab.record.read import find_record
from lab.words import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "name of a run, or its beginning or end"
    shared.add_options(parser, "before", metavar="RUN1", help=about, complete="runs")
    about = "the run to compare with it (default: the latest)"
    shared.add_options(parser, "after", metavar="RUN2", nargs="?", help=about, complete="runs")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Compare the runs; needs no engine."""
    from lab.features.compare.compare import compare_runs, diff_text
    from lab.trace.read import open_trace

    before = find_record(arguments.before, arguments.runs)
    after = find_record(arguments.after, arguments.runs)
    comparison = compare_runs(before, after, (open_trace(before), open_trace(after)))
    return print_answer(arguments, comparison.to_json, lambda style: diff_text(comparison, style))


def _add_diff(parser: Parser) -> None:
    about = "compare two runs side by side"
    shared.add_options(parser.one_of(), "--diff", nargs=2, metavar=("RUN1", "RUN2"), help=about, complete="runs")


def _report_diff(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Write the comparison page if requested; needs no engine and no network."""
    if not arguments.diff:
        return verb(arguments)
    if arguments.run:
        raise UsageError(f"--diff compares two runs, but {arguments.run} is a third", "use `lab report --diff A B`")
    if arguments.attempt is not None:
        raise UsageError("--attempt needs a single run", "use `lab report RUN --attempt N`")
    from lab.features.compare.page import write_diff
    from lab.features.html.verb import announce_page

    before, after = (find_record(name, arguments.runs) for name in arguments.diff)
    diff = write_diff(before, after, arguments.output)
    same = "the same calls" if diff.identical else "the page marks the differences"
    data = {**vars(diff), "path": str(diff.path)}
    return announce_page(arguments, diff.path, data, [f"{format_bytes(diff.bytes)}, {same}"])


REPORT_OPTIONS = Command(_add_diff, _report_diff)
"""`lab report --diff`."""
