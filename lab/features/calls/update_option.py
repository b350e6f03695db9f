"""`--update` and `--no-update`: whether snapshots are written anew."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--update",
        action=argparse.BooleanOptionalAction,
        help="write the snapshots of `expect: calls: snapshot` anew; --no-update: not even those that are missing "
        "(default: those that are missing, and none where CI is set)",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    return verb(arguments)
