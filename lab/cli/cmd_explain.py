"""`lab explain`: what happened in a run, in sentences."""

from __future__ import annotations

import argparse

from lab.cli.arguments import add_record, open_record, print_answer
from lab.feature import find_view


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain the run; needs no engine."""
    from lab.diagnosis.explain import explain_run
    from lab.report.verdict import explanation_text

    record = open_record(arguments)
    explanation, broken_in = explain_run(record), find_view("broken")
    broken = broken_in(record) if broken_in else []
    return print_answer(
        arguments,
        lambda: {**explanation.to_json(), "broken": broken},
        lambda style: explanation_text(explanation, style, [one["sentence"] for one in broken]),
    )
