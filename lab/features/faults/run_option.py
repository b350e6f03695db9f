"""`lab run --fault`, `--network`, `--keep-faults`: what is broken in a run beside what its scenario says."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--network",
        metavar="PROFILE",
        help="have links as another network has them, by the name of a profile such as lan-1g or wan-40ms (on Docker)",
    )
    parser.add_argument(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="WHAT",
        help="break that on purpose, beside what the scenario breaks: 'kill: node2, when: {at: 2s}', or a YAML file",
    )
    parser.add_argument(
        "--keep-faults",
        action="store_true",
        help="leave what `lab fault` has broken so, before and after the run",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Read what is to be broken, and run.

    Raises:
        ScenarioError: a fault is none; a line a problem.
    """
    if arguments.faults:
        from lab.features.faults.text import named_faults

        arguments.faults = named_faults(arguments.faults)
    return verb(arguments)
