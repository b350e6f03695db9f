"""`lab runs`: every run on record, and how to be rid of old ones."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lab.cli import arguments as shared
from lab.cli.arguments import answer
from lab.errors import UsageError
from lab.record.prune import Pruned, list_links, prune
from lab.record.read import Record, list_records
from lab.record.result import Result
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip, format_bytes, format_duration, plural

_LONGEST_REASON = 90
_HOWTO = """examples:
  lab runs --prune --keep 20 --dry-run     what would go, if only the latest 20 were to stay
  lab runs --prune --older-than 7d         remove what is older than a week
  lab runs --prune --older-than 1d --keep 5

With both, a run goes that is older and not among the latest. A run that goes on always stays."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    parser.add_argument("--last", type=shared.positive, metavar="N", help="only the latest N")
    parser.add_argument("--prune", action="store_true", help="remove the records that --keep and --older-than leave")
    parser.add_argument("--keep", type=shared.whole, metavar="N", help="with --prune: the latest N stay")
    parser.add_argument(
        "--older-than",
        dest="age_s",
        type=shared.age,
        metavar="AGE",
        help="with --prune: only what is older goes, e.g. 12h, 7d or 4w",
    )
    parser.add_argument("--dry-run", action="store_true", help="with --prune: say what would go, and remove nothing")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them, the latest last, or remove some."""
    if arguments.prune:
        return _prune(arguments)
    if arguments.keep is not None or arguments.age_s is not None or arguments.dry_run:
        raise UsageError("--keep, --older-than and --dry-run say what --prune does", "say `lab runs --prune ...`")
    records = list_records(arguments.runs)[-(arguments.last or 0) :]
    found = [(record, record.result_or_refusal(), record.size_bytes()) for record in records]
    return answer(
        arguments,
        lambda: [_json(*one) for one in found],
        lambda style: _table(found, style) if found else f"no runs in {arguments.runs}",
    )


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.keep is None and arguments.age_s is None:
        raise UsageError("--prune needs to know what may go", "say --keep N, --older-than AGE, or both")
    before = None if arguments.age_s is None else time.time() - arguments.age_s
    links = list_links(arguments.runs)
    gone = prune(
        list_records(arguments.runs), keep=arguments.keep or 0, before=before, dry_run=arguments.dry_run, links=links
    )
    return answer(arguments, gone.to_json, lambda _: _told(gone, arguments.dry_run))


def _told(gone: Pruned, dry_run: bool) -> str:
    lines = [f"  {record.run}  {format_bytes(size)}" for record, size in gone.removed]
    head = f"{'would remove' if dry_run else 'removed'} {plural(len(lines), 'run')}, {format_bytes(gone.size_bytes)}"
    lines = [f"{head}{':' if lines else ''}", *lines] if lines else ["nothing to remove"]
    lines += [f"{'would remove' if dry_run else 'removed'} the link {name}, not its target" for name in gone.links]
    return "\n".join([*lines, *(f"{record.run} goes on and stays" for record in gone.in_progress)])


def _json(record: Record, result: Result, size_bytes: int) -> dict[str, Any]:
    return {**result.to_json(), "size_bytes": size_bytes, "in_progress": record.in_progress}


def _table(found: list[tuple[Record, Result, int]], style: Style) -> str:
    rows = []
    for record, result, size_bytes in found:
        ranks, took = str(len(result.ranks)), format_duration(result.duration_s)
        goes_on = record.in_progress
        verdict = "goes on" if goes_on else result.verdict
        reason = "" if goes_on else clip(result.reason, _LONGEST_REASON)
        rows.append([result.run, verdict, result.engine, ranks, took, format_bytes(size_bytes), reason])
    rows.append(["", "", "", "", "", format_bytes(sum(size for _, _, size in found)), plural(len(found), "run")])
    return table_text(["run", "verdict", "engine", "ranks", "time", "size", "reason"], rows, style)
