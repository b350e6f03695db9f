"""`lab show`: the result of a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lab.cli.arguments import add_record, open_record, print_answer
from lab.cli.call import Parser
from lab.errors import RecordError
from lab.feature import find_hook, find_view
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
    return print_answer(arguments, record.result().to_json, lambda style: _render(record, style))


def _render(record: Record, style: Style) -> str:
    """Render the result, pictures of its steps, and lines about the run, other backends in use, and recorded steps."""
    from lab.diagnosis.facts import read_facts

    result, named = record.result(), read_facts(record).named
    parts = [result_text(result, style)]
    lines = [f"engine {result.engine}, cluster {result.cluster}, run {result.run}"]
    if named and (find_named_backends := find_hook("named_backends")):
        lines += [finding.sentence for finding in find_named_backends(named)]
    if is_traced(record):
        trace, steps = read_steps(record)
        if draw_pictures := find_view("run_pictures"):
            parts += draw_pictures(record, trace, steps, style, parts[0].count("\n") + len(lines) + 4)
        listed = f"lab show {record.run} --steps, or --step N for a picture"
        lines.append(f"{format_count(len(steps), 'step')} recorded: {listed}")
        cuts = dict.fromkeys(rank.cut for rank in trace.ranks.values() if rank.cut)
        lines += [f"recording ended early: {why}" for why in cuts]
    else:
        lines.append("the run has no trace, so the calls of its ranks are unknown")
    return "\n\n".join([*parts, "\n".join(style.paint(line, "dim") for line in lines)])


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
        raise RecordError(f"run {record.run} has no trace", "run it again without --no-trace")
    trace = read_trace(record)
    return trace, match_steps(trace)
