"""`lab explain`: what happened in a run, in sentences."""

from __future__ import annotations

import argparse

from lab.cli.answer import answer
from lab.cli.on_record import add_record, open_record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain it; needs no engine."""
    from lab.explain.explain import explain
    from lab.report.explain_view import explanation_text

    explanation = explain(open_record(arguments))
    return answer(arguments, explanation.to_json, lambda style: explanation_text(explanation, style))
