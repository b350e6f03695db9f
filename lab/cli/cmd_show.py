"""`lab show`: the result of a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lab.cli.arguments import add_record, open_record, print_answer
from lab.cli.call import Parser
from lab.errors import RecordError
from lab.feature import find_hook
from lab.record.layout import TRACE
from lab.record.read import Record
from lab.record.record_files import list_names
from lab.report.style import Style
from lab.report.verdict import result_text
from lab.words import format_count

if TYPE_CHECKING:
    from lab.trace.model import Trace
    from lab.trace.steps import Step


def add_arguments(parser: Parser) -> None:
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the result; needs no engine."""
    record = open_record(arguments)
    result = record.result()
    return print_answer(
        arguments, result.to_json, lambda style: result_text(result, style) + _extra_lines(record, style)
    )


def _extra_lines(record: Record, style: Style) -> str:
    """Return lines about other backends in use and recorded steps."""
    from lab.diagnosis.facts import read_facts

    named = read_facts(record).named
    find_named_backends = find_hook("named_backends") if named else None
    lines = [finding.sentence for finding in find_named_backends(named)] if find_named_backends else []
    if is_traced(record):
        lines.append(f"{format_count(len(read_steps(record)[1]), 'step')} recorded: lab show {record.run} --steps")
    return "".join("\n" + style.paint(line, "dim") for line in lines)


def is_traced(record: Record) -> bool:
    """Return whether the calls of a run were recorded."""
    return bool(list_names(record.path, TRACE))


def read_steps(record: Record) -> tuple[Trace, list[Step]]:
    """Read the trace of a run, and match its calls into steps.

    Raises:
        RecordError: nothing was recorded.
    """
    from lab.trace.read import read_trace
    from lab.trace.steps import match_steps

    if not is_traced(record):
        raise RecordError(f"run {record.run} has no trace", "run it again; `lab run` records one without --no-trace")
    trace = read_trace(record)
    return trace, match_steps(trace)
