"""Arguments that name what is on record, and the record that they name."""

from __future__ import annotations

import argparse

from lab.cli import argument_types as types
from lab.cli import arguments as shared
from lab.record.read import Record, find_record


def add_record(parser: argparse.ArgumentParser) -> None:
    """The name of a run, `--attempt`, `--runs` and `--json`: what every verb takes that shows what is on record."""
    run = parser.add_argument("run", nargs="?", help="name of a run, or how it begins or ends (default: the latest)")
    shared.completes(run, "runs")
    add_attempt(parser)
    shared.add_runs(parser)
    shared.add_json(parser)


def add_attempt(parser: argparse.ArgumentParser) -> None:
    """`--attempt`."""
    parser.add_argument(
        "--attempt",
        type=types.whole,
        metavar="N",
        help="of a run whose launcher began the workers anew: this attempt, the first is 0 (default: the last)",
    )


def open_record(arguments: argparse.Namespace) -> Record:
    """The record that was named.

    Raises:
        RecordError: there is none, or it has no such attempt.
    """
    return find_record(arguments.run, arguments.runs).attempt(arguments.attempt)
