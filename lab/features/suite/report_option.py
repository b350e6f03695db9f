"""`lab report --suite`: the runs of a suite on one page."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli.call import Parser
from lab.errors import UsageError
from lab.words import format_bytes


def add_arguments(parser: Parser) -> None:
    parser.one_of().add_argument(
        "--suite",
        action="store_true",
        help="the runs of one `lab test`, or of one `lab run` of several scenarios; RUN is one of them",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Write that page where it is asked for; needs no engine and no network."""
    if not arguments.suite:
        return verb(arguments)
    if arguments.attempt is not None:
        raise UsageError("--attempt is of one run", "say `lab report RUN --attempt N`")
    from lab.features.html.verb import tell_page
    from lab.features.records.records import find_suite
    from lab.features.suite.page import write_suite

    suite = write_suite(find_suite(arguments.run, arguments.runs), arguments.output)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in suite.verdicts.items())
    return tell_page(arguments, suite.path, suite.to_json(), [f"{format_bytes(suite.bytes)}, {counts}"])
