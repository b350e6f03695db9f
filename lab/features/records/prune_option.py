"""`lab runs --prune`: remove old records by number and age, but never one that is still being written.

Examples:
  lab runs --prune --keep 20 --dry-run     list the records that are not among the latest 20
  lab runs --prune --older-than 7d         remove records that are older than a week
  lab runs --prune --older-than 1d --keep 5

With both, a record has to be older and not among the latest. Records of runs in progress stay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.call import help_in
from lab.errors import RecordError, UsageError
from lab.node.files import remove_tree
from lab.record.read import list_records
from lab.words import format_bytes, format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = help_in(__doc__)
    parser.add_argument("--prune", action="store_true", help="remove the records outside of --keep and --older-than")
    parser.add_argument("--keep", type=shared.whole, metavar="N", help="with --prune: keep the latest N records")
    older = "with --prune: remove only records older than this, such as 12h, 7d, or 4w"
    parser.add_argument("--older-than", dest="age_s", type=shared.age, metavar="AGE", help=older)
    parser.add_argument("--dry-run", action="store_true", help="with --prune: list the records, and remove nothing")


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Remove records; without --prune, list runs.

    Raises:
        RecordError: A record cannot be removed; all others are.
    """
    chosen = arguments.keep is not None or arguments.age_s is not None
    if not arguments.prune:
        if chosen or arguments.dry_run:
            raise UsageError("--keep, --older-than, and --dry-run need --prune", "use `lab runs --prune ...`")
        return verb(arguments)
    if not chosen:
        raise UsageError("--prune needs a limit", "add --keep N, --older-than AGE, or both")
    records, before = list_records(arguments.runs), inf if arguments.age_s is None else time.time() - arguments.age_s
    old = [one for one in records[: max(0, len(records) - (arguments.keep or 0))] if one.began() < before]
    going_on = [one for one in old if one.in_progress]
    removed = [(one, one.size_bytes()) for one in old if one not in going_on]
    if not arguments.dry_run:
        _remove([record.path for record, _ in removed])
    size_bytes = sum(size for _, size in removed)
    data = {
        "removed": [{"run": record.run, "size_bytes": size} for record, size in removed],
        "size_bytes": size_bytes,
        "in_progress": [record.run for record in going_on],
    }
    done = "would remove" if arguments.dry_run else "removed"
    head = f"{done} {format_count(len(removed), 'run')}, {format_bytes(size_bytes)}:"
    lines = [head if removed else "nothing to remove"]
    lines += [f"  {record.run}  {format_bytes(size)}" for record, size in removed]
    lines += [f"kept {record.run}: it is in progress" for record in going_on]
    return shared.print_answer(arguments, data, lambda _: "\n".join(lines))


def _remove(paths: list[Path]) -> None:
    if left := [path for path in paths if not remove_tree(path)]:
        others = f" (and {format_count(len(left) - 1, 'other')})" if len(left) > 1 else ""
        raise RecordError(f"cannot remove the record {left[0]}{others}", "another user owns files in it")
