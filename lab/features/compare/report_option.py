"""`lab report --diff RUN1 RUN2`: two runs side by side on one page."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.errors import UsageError
from lab.record.read import find_record
from lab.words import format_bytes


def add_arguments(parser: Parser) -> None:
    diff = parser.one_of().add_argument("--diff", nargs=2, metavar=("RUN1", "RUN2"), help="two runs side by side")
    shared.completes(diff, "runs")


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Write that page where it is asked for; needs no engine and no network."""
    if not arguments.diff:
        return verb(arguments)
    if arguments.run:
        raise UsageError(f"--diff compares two runs, and {arguments.run} is a third", "say `lab report --diff A B`")
    if arguments.attempt is not None:
        raise UsageError("--attempt is of one run", "say `lab report RUN --attempt N`")
    from lab.features.compare.page import write_diff
    from lab.features.html.verb import tell_page

    before, after = (find_record(name, arguments.runs) for name in arguments.diff)
    diff = write_diff(before, after, arguments.output)
    same = "the same calls" if diff.identical else "what differs is marked"
    return tell_page(arguments, diff.path, diff.to_json(), [f"{format_bytes(diff.bytes)}, {same}"])
