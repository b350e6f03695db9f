"""`--baseline`: runs held against earlier ones, for the verbs that have it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.record.read import Record

if TYPE_CHECKING:
    from lab.trace.baseline import Baseline


def add_baseline(container: argparse._ActionsContainer) -> None:
    """`--baseline` and `--slower`."""
    baseline = container.add_argument(
        "--baseline",
        metavar="RUNS",
        help="say what got slower, sends more or is called otherwise than in earlier runs: a folder of them, or the "
        "name of a suite or a run; the exit code is 1 then",
    )
    shared.completes(baseline, "runs")
    container.add_argument(
        "--slower",
        dest="tolerance",
        type=_part,
        metavar="PART",
        help="with --baseline: by what part of its time a scenario may take longer, such as 10%% (default: 20%%)",
    )


def earlier(arguments: argparse.Namespace) -> list[Record]:
    """The earlier runs that were asked for.

    Raises:
        RecordError: there are none of that name.
    """
    from lab.record.suite import earlier_records

    return earlier_records(arguments.baseline, arguments.runs)


def held_against(arguments: argparse.Namespace, before: Sequence[Record], after: Sequence[Record]) -> Baseline:
    """Runs, compared with earlier ones as the arguments say."""
    from lab.trace.baseline import TOLERANCE, hold_against_runs

    tolerance = TOLERANCE if arguments.tolerance is None else arguments.tolerance
    return hold_against_runs(before, after, arguments.baseline, tolerance)


def _part(word: str) -> float:
    try:
        part = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < 1000:
        raise argparse.ArgumentTypeError(f"found {word!r}; allowed: a part, such as 10% or 0.1")
    return part
