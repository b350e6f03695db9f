"""All steps of a run: a row for each collective and each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.report.export.data import step_facts
from lab.report.style import Style
from lab.report.table import table_text
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration

_HEADER = ("operation", "group", "at", "bytes", "ranks", "state", "time", "last")
_COLOURS = {"failed": "red", "unfinished": "yellow"}


def steps_text(trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """A table of the steps, then what is missing in the trace."""
    rounds = any(step.round for step in steps)
    header = ["step", *(["round"] if rounds else []), *_HEADER]
    rows = [[str(step.number), *([str(step.round or NONE)] if rounds else []), *_row(step)] for step in steps]
    head, *lines = table_text(header, rows, style).split("\n")
    colours = [_COLOURS.get(step.state) for step in steps]
    painted = [style.paint(line, colour) if colour else line for line, colour in zip(lines, colours, strict=True)]
    parts = ["\n".join([head, *painted])] if steps else ["No collective and no message was recorded."]
    parts += [style.paint(problem, "dim") for problem in trace.problems]
    return "\n".join(parts)


def _row(step: Step) -> list[str]:
    span = None if step.end is None else step.end - step.begin
    entered = str(len(step.calls)) if not step.missing else f"{len(step.calls)} of {len(step.expected)}"
    return [
        step.title if step.message else f"{step.op} #{step.seq}",
        step.group.label,
        next((call.source for call in step.calls.values() if call.source), NONE),
        format_bytes(max(call.bytes for call in step.calls.values())),
        entered,
        step.state,
        format_duration(span),
        NONE if step.last is None else f"rank {step.last}",
    ]


def steps_json(trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """The same as plain data; times in seconds from the first line of the trace."""
    return {"steps": [_step_json(step) for step in steps], "problems": trace.problems}


def _step_json(step: Step) -> dict[str, Any]:
    return {
        **step_facts(step),
        "group": step.group.label,
        "group_ranks": step.group.ranks,
        "at": next((call.source for call in step.calls.values() if call.source), None),
        "bytes": max(call.bytes for call in step.calls.values()),
        "ranks": sorted(step.calls),
    }
