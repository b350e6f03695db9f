"""`lab show --steps`, `--calls`: the calls of ranks. `--update`: rewrite snapshots."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from lab.cli import arguments as shared
from lab.cli.call import Command, Parser


def add_arguments(parser: Parser) -> None:
    what = parser.one_of()
    what.add_argument("--steps", action="store_true", help="list every collective and every message of the run")
    what.add_argument("--calls", action="store_true", help="print what each rank called, as `expect: calls:` states it")


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Print the selected view; needs no engine."""
    if not (arguments.steps or arguments.calls):
        return verb(arguments)
    from lab.cli.cmd_show import read_steps
    from lab.features.calls import notation

    trace, steps = read_steps(shared.open_record(arguments))
    if arguments.steps:
        as_json, as_text = partial(notation.steps_json, trace, steps), partial(notation.steps_text, trace, steps)
        return shared.print_answer(arguments, as_json, as_text)
    return shared.print_answer(arguments, partial(notation.calls_json, trace), lambda _: notation.calls_text(trace))


def _add_update(parser: Parser) -> None:
    about = (
        "write the snapshots of `expect: calls: snapshot` again; with --no-update, write none (default: write those "
        "that are missing, and none if CI is set)"
    )
    shared.add_options(parser.group("record"), "--update", action=argparse.BooleanOptionalAction, help=about, rare=True)


UPDATE = Command(_add_update, lambda arguments, verb: verb(arguments))
"""The option of `lab run` and `lab test`."""
