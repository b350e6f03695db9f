"""`lab report`: a run as one HTML file: verdict, pictures, timeline, traffic, logs; or a suite, or two runs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cli.answer import say
from lab.cli.on_record import add_record, open_record
from lab.errors import UsageError
from lab.record.read import find_record
from lab.words import format_bytes, plural

_HOWTO = """examples:
  lab report --open              the latest run, in the browser
  lab report --suite             all runs of the last `lab test`, or `lab run` of several, with a link to each
  lab report --diff RUN1 RUN2    two runs side by side, what differs marked"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--suite",
        action="store_true",
        help="the runs of one `lab test`, or of one `lab run` of several scenarios; RUN is one of them",
    )
    diff = what.add_argument("--diff", nargs=2, metavar=("RUN1", "RUN2"), help="two runs side by side")
    shared.completes(diff, "runs")
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="where to write it (default: report.html in the record; suite.html beside the records; diff.html in the "
        "record of RUN2)",
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write it; needs no engine and no network."""
    if arguments.diff and arguments.run:
        raise UsageError(f"--diff compares two runs, and {arguments.run} is a third", "say `lab report --diff A B`")
    if arguments.attempt is not None and (arguments.suite or arguments.diff):
        raise UsageError("--attempt is of one run", "say `lab report RUN --attempt N`")
    if arguments.suite:
        from lab.features.suite.page import write_suite
        from lab.record.suite import find_suite

        suite = write_suite(find_suite(arguments.run, arguments.runs), arguments.output)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in suite.verdicts.items())
        return _tell(arguments, suite.path, suite.to_json(), [f"{format_bytes(suite.bytes)}, {counts}"])
    if arguments.diff:
        from lab.report.html.diff import write_diff

        before, after = (find_record(name, arguments.runs) for name in arguments.diff)
        diff = write_diff(before, after, arguments.output)
        same = "the same calls" if diff.identical else "what differs is marked"
        return _tell(arguments, diff.path, diff.to_json(), [f"{format_bytes(diff.bytes)}, {same}"])
    from lab.report.html.page import write_report

    report = write_report(open_record(arguments), arguments.output)
    steps, lines = plural(report.steps, "step"), plural(report.log_lines, "log line")
    told = [f"{format_bytes(report.bytes)}, {steps}, {lines}", *report.left_out]
    return _tell(arguments, report.path, report.to_json(), told)


def _tell(arguments: argparse.Namespace, path: Path, data: dict[str, Any], told: list[str]) -> int:
    """Say what was written, and open it if that is wanted."""
    from lab.cli.open_page import open_page

    opened = open_page(path) if arguments.open else ""
    if arguments.json:
        print(json.dumps({**data, **({"opened": not opened} if arguments.open else {})}))
        return 0
    first, *more = told
    say(f"{path}  {first}")
    for sentence in more:
        say(f"  {sentence}")
    if opened:
        sys.stderr.write(f"{opened}\n")
    return 0
