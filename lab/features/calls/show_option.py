"""`lab show --steps`, `--calls`, `--connections`: what ranks called, and how their nodes are connected."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli.arguments import answer, open_record
from lab.cli.call import Parser
from lab.cli.cmd_show import read_steps


def add_arguments(parser: Parser) -> None:
    what = parser.one_of()
    what.add_argument("--steps", action="store_true", help="list every collective and every message of the run")
    what.add_argument("--calls", action="store_true", help="print what each rank called, as `expect: calls:` states it")
    what.add_argument(
        "--connections",
        action="store_true",
        help="print what kernels said of the connections between nodes",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Show it; needs no engine."""
    if not (arguments.connections or arguments.steps or arguments.calls):
        return verb(arguments)
    from lab.features.calls import notation

    record = open_record(arguments)
    if arguments.connections:
        facts = [*record.events()]
        return answer(
            arguments, lambda: notation.connections_json(facts), lambda style: notation.connections_text(facts, style)
        )
    trace, steps = read_steps(record)
    if arguments.steps:
        return answer(
            arguments,
            lambda: notation.steps_json(trace, steps),
            lambda style: notation.steps_text(trace, steps, style),
        )
    return answer(arguments, lambda: notation.calls_json(trace), lambda _: notation.calls_text(trace))
