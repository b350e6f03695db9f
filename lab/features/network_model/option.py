"""`lab show --model`: compare the all_reduces of a run with the alpha-beta model of a network."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.cli.cmd_show import is_traced, read_steps
from lab.errors import UsageError


def add_arguments(parser: Parser) -> None:
    about = "compare the all_reduces of the run, and of the runs of its suite, with the alpha-beta model of a network"
    parser.one_of().add_argument("--model", action="store_true", help=about)


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Show the run, or all runs of its suite; needs no engine."""
    if not arguments.model:
        return verb(arguments)
    if arguments.svg is not None:
        raise UsageError("--model prints a table, and --svg draws a step", "leave out one of them")
    from lab.features.network_model.model import network_json, network_text, pace_of
    from lab.features.records.records import earlier_records

    record = shared.open_record(arguments)
    records = earlier_records(record.run, record.path.parent) if record.run_of_attempt is None else [record]
    traced = [one for one in records if is_traced(one)] or [record]
    paces = {one.run: pace_of(*read_steps(one)) for one in traced}
    return shared.print_answer(arguments, network_json(paces), lambda style: network_text(paces, style))
