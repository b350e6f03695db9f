"""`lab run --chaos`: search for faults that a scenario does not survive."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from lab.cli import arguments as shared
from lab.errors import UsageError

_OPTIONS = {"seed": "--seed", "kinds": "--faults", "most": "--most", "out": "--out"}
DRAWN = 50
"""Default number of schedules of a search."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--chaos` and its options."""
    group = parser.add_argument_group("search for faults that the scenario does not survive")
    group.add_argument(
        "--chaos",
        action="store_true",
        help=f"run it under random faults at its own calls, phases, and notes, on a separate cluster; "
        f"--runs N: N schedules (default: {DRAWN}); a failing one is shrunk and written as a scenario",
    )
    group.add_argument("--seed", type=int, metavar="N", help="seed of the schedules (default: 0)")
    about = "kinds of faults, such as kill,pause (default: all that do not change data)"
    group.add_argument("--faults", dest="kinds", metavar="KINDS", help=about)
    group.add_argument("--most", type=shared.positive, metavar="N", help="most faults at once (default: 3)")
    about = "file for the scenario (default: chaos-SEED-NAME.yaml, next to the script)"
    group.add_argument("--out", type=Path, metavar="FILE", help=about)


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Search with `--chaos`; return 1 if a schedule breaks something.

    Raises:
        UsageError: There is an option of a search, but no `--chaos`.
    """
    if arguments.chaos:
        from lab.features.chaos.trials import run_search

        return run_search(arguments, DRAWN)
    options = [option for name, option in _OPTIONS.items() if getattr(arguments, name) is not None]
    if options:
        raise UsageError(f"{options[0]} needs --chaos", "add --chaos")
    return verb(arguments)
