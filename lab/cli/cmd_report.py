"""`lab report`: a run as one HTML file: verdict, pictures, timeline, traffic, logs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.answer import say
from lab.record.read import find_record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="where to write it (default: report.html in the record)"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    shared.add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write it; needs no engine and no network."""
    from lab.cli.open_page import open_page
    from lab.report.html.page import write_report
    from lab.words import format_bytes, plural

    report = write_report(find_record(arguments.run, arguments.runs), arguments.output)
    opened = open_page(report.path) if arguments.open else ""
    if arguments.json:
        print(json.dumps({**report.to_json(), **({"opened": not opened} if arguments.open else {})}))
        return 0
    steps, lines = plural(report.steps, "step"), plural(report.log_lines, "log line")
    say(f"{report.path}  {format_bytes(report.bytes)}, {steps}, {lines}")
    for sentence in report.left_out:
        say(f"  {sentence}")
    if opened:
        sys.stderr.write(f"{opened}\n")
    return 0
