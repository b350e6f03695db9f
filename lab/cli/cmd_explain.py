"""`lab explain`: what happened in a run, in sentences."""

from __future__ import annotations

import argparse
import json
import sys

from lab.cli import arguments as shared
from lab.record.read import find_record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab explain` takes."""
    parser.add_argument("run", nargs="?", help="name of a run, or how it begins or ends (default: the latest)")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain it; needs no engine."""
    from lab.explain.explain import explain
    from lab.report.explain_view import explanation_text
    from lab.report.style import style_for

    explanation = explain(find_record(arguments.run, arguments.runs))
    if arguments.json:
        print(json.dumps(explanation.to_json()))
    else:
        print(explanation_text(explanation, style_for(sys.stdout)))
    return 0
