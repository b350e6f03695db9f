"""`lab run --report`: the runs as pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from lab.feature import view


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", action="store_true", help="write the run as an HTML page, and open it")


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Run, then write each run as a page; of several, one more that leads to all. Standard output is the verdict's."""
    code = verb(arguments)
    if not arguments.report:
        return code
    from lab.features.html.page import write_report
    from lab.features.html.write import open_page
    from lab.features.records.records import find_suite
    from lab.record.read import Record

    folders = [result.path for result in getattr(arguments, "results", ()) if result.path is not None]
    many = len(arguments.scenarios) > 1
    for folder in folders:
        report = write_report(Record(path=folder))
        why_not = "" if many else open_page(report.path)
        sys.stderr.write(f"  report: {report.path}{f' ({why_not})' if why_not else ''}\n")
    write_suite = view("suite")
    if many and folders and write_suite:
        sys.stderr.write(f"  all of them: {write_suite(find_suite(str(folders[0]))).path}\n")
    return code
