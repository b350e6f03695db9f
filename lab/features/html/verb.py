"""`lab report`: write a run as one HTML file: verdict, pictures, timeline, traffic, logs; or a suite, or two runs.

Example:
  lab report --open              the latest run, in the browser
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.cli.arguments import add_record, open_record, print_answer
from lab.cli.call import Command, Parser
from lab.feature import find_view
from lab.words import format_bytes, format_count


def add_arguments(parser: Parser) -> None:
    default = "report.html in the record; suite.html next to the records; diff.html in the record of RUN2"
    about = f"file to write (default: {default})"
    parser.add_argument("--out", "-o", dest="output", type=Path, metavar="FILE", help=about)
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report; this needs no engine and no network."""
    from lab.features.html.page import write_report

    report = write_report(open_record(arguments), arguments.output)
    steps, lines = format_count(report.steps, "step"), format_count(report.log_lines, "log line")
    sentences = [f"{format_bytes(report.bytes)}, {steps}, {lines}", *report.left_out]
    return announce_page(arguments, report.path, report.to_json(), sentences)


def announce_page(arguments: argparse.Namespace, path: Path, data: dict[str, Any], sentences: list[str]) -> int:
    """Print the path of the page, and with `--open` open the page."""
    from lab.features.html.write import open_page

    problem = open_page(path) if arguments.open else ""
    print_answer(
        arguments,
        {**data, **({"opened": not problem} if arguments.open else {})},
        lambda _: f"{path}  " + "\n  ".join(sentences),
    )
    if problem and not arguments.json:
        sys.stderr.write(f"{problem}\n")
    return 0


def _add_report(parser: Parser) -> None:
    about = "write the report of the run, an HTML page, and open it"
    parser.group("output").add_argument("--report", action="store_true", help=about)


def _run_and_report(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Run, then write a page for each run, and one for several runs.

    Standard output shows only the verdicts.
    """
    code = verb(arguments)
    if not arguments.report:
        return code
    from lab.features.html.page import write_report
    from lab.features.html.write import open_page
    from lab.features.records.records import find_suite
    from lab.record.read import Record

    folders = [result.path for result in getattr(arguments, "results", ()) if result.path is not None]
    with_suite = len(arguments.scenarios) > 1
    for folder in folders:
        report = write_report(Record(path=folder))
        problem = "" if with_suite else open_page(report.path)
        sys.stderr.write(f"  report: {report.path}{f' ({problem})' if problem else ''}\n")
    write_suite = find_view("suite")
    if with_suite and folders and write_suite:
        sys.stderr.write(f"  all runs: {write_suite(find_suite(str(folders[0]))).path}\n")
    return code


RUN_OPTIONS = Command(_add_report, _run_and_report)
"""`lab run --report`."""
