"""`lab run --chaos`: search for faults that a scenario does not survive."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.errors import UsageError

_OPTIONS = {"schedules": "--schedules", "seed": "--seed", "kinds": "--faults", "most": "--most"}
DRAWN = 50
"""Default number of schedules of a search."""


def add_arguments(parser: Parser) -> None:
    """Add `--chaos` and its options."""
    group = parser.group("faults")
    group.add_argument("--chaos", action="store_true", help="search for faults that the scenario does not survive")
    about = f"with --chaos: run it under N schedules of faults (default: {DRAWN})"
    shared.add_options(group, "--schedules", type=shared.positive, metavar="N", help=about, rare=True)
    about = "with --chaos: draw the schedules from this seed (default: 0)"
    shared.add_options(group, "--seed", type=int, metavar="N", help=about, rare=True)
    about = "with --chaos: use only these kinds, such as kill,pause (default: all that do not change data)"
    shared.add_options(group, "--faults", dest="kinds", metavar="KINDS", help=about, rare=True)
    about = "with --chaos: at most N faults at once (default: 3)"
    shared.add_options(group, "--most", type=shared.positive, metavar="N", help=about, rare=True)


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Search with `--chaos`; return 1 if a schedule breaks something.

    Raises:
        UsageError: There is an option of a search, but no `--chaos`.
    """
    if arguments.chaos:
        from lab.features.chaos.trials import run_search

        return run_search(arguments, DRAWN)
    if options := [option for name, option in _OPTIONS.items() if getattr(arguments, name) is not None]:
        raise UsageError(f"{options[0]} needs --chaos", "add --chaos")
    return verb(arguments)
