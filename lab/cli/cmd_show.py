"""`lab show`: the result of a run."""

from __future__ import annotations

import argparse
import json
import sys

from lab.cli import arguments as shared
from lab.record.read import find_record
from lab.report.result_view import result_text
from lab.report.style import style_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab show` takes."""
    parser.add_argument("run", nargs="?", help="name of a run, or how it begins or ends (default: the latest)")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it; needs no engine."""
    result = find_record(arguments.run, arguments.runs).result()
    print(json.dumps(result) if arguments.json else result_text(result, style_for(sys.stdout)))
    return 0
