"""`--baseline`: runs held against earlier ones, for the verbs that have it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.record.read import Record

if TYPE_CHECKING:
    from lab.features.compare.baseline import Baseline


def add_baseline(container: argparse._ActionsContainer) -> None:
    """`--baseline` and `--slower`."""
    baseline = container.add_argument(
        "--baseline",
        metavar="RUNS",
        help="say what got slower, sends more or is called otherwise than in earlier runs: a folder of them or of "
        "snapshots, or the name of a suite or a run; the exit code is 1 then",
    )
    shared.completes(baseline, "runs")
    container.add_argument(
        "--slower",
        dest="tolerance",
        type=_part,
        metavar="PART",
        help="with --baseline: by what part of its time a scenario may take longer, such as 10%% (default: 20%%)",
    )


def comparison(arguments: argparse.Namespace) -> Callable[[Sequence[Record]], Baseline]:
    """What compares runs with the earlier ones, or with the snapshots, that were asked for.

    Raises:
        LabError: there are none of that name, or a snapshot cannot be read.
    """
    from lab.features.calls.file import SUFFIX, SnapshotFile
    from lab.features.compare.baseline import TOLERANCE, hold_against_calls, hold_against_runs
    from lab.features.records.records import earlier_records
    from lab.record.read import list_records

    name, folder = arguments.baseline, Path(arguments.baseline)
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if files and not list_records(folder):
        known = {path.name.removesuffix(SUFFIX): SnapshotFile(path=path, of="", how="").read() or {} for path in files}
        return lambda after: hold_against_calls(known, after, name)
    tolerance = TOLERANCE if arguments.tolerance is None else arguments.tolerance
    before = earlier_records(name, arguments.runs)
    return lambda after: hold_against_runs(before, after, name, tolerance)


def _part(word: str) -> float:
    try:
        part = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < 1000:
        raise argparse.ArgumentTypeError(f"found {word!r}; allowed: a part, such as 10% or 0.1")
    return part
