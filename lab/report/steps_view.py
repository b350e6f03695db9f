"""All steps of a run: a row for each collective and each message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lab.report.alike import MANY, range_text
from lab.report.style import Style
from lab.report.table import table_text
from lab.report.trace_data import step_facts
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration

_HEADER = ("operation", "group", "at", "bytes", "ranks", "state", "time", "last")
_COLOURS = {"failed": "red", "unfinished": "yellow"}


def steps_text(trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """A table of the steps, then what is missing in the trace."""
    rounds = any(step.round for step in steps)
    header = ["step", *(["round"] if rounds else []), *_HEADER]
    groups = [[step] for step in steps] if trace.world_size <= MANY else _alike(steps)
    rows = [[_numbers(ours), *([str(ours[0].round or NONE)] if rounds else []), *_rows_of(ours)] for ours in groups]
    head, *lines = table_text(header, rows, style).split("\n")
    colours = [_COLOURS.get(ours[0].state) for ours in groups]
    painted = [style.paint(line, colour) if colour else line for line, colour in zip(lines, colours, strict=True)]
    parts = ["\n".join([head, *painted])] if steps else ["No collective and no message was recorded."]
    parts += [style.paint(problem, "dim") for problem in trace.problems]
    return "\n".join(parts)


def _alike(steps: Sequence[Step]) -> list[list[Step]]:
    """Messages that follow each other and differ in their ends and their time at most, together."""

    def kind(step: Step) -> tuple[object, ...]:
        *_, last = row = _row(step)
        return (step.round, step.op, *row[1:-2]) if step.message else (step.number, last)

    return [list(same) for _, same in groupby(steps, key=kind)]


def _numbers(steps: Sequence[Step]) -> str:
    return str(steps[0].number) if len(steps) == 1 else f"{steps[0].number}-{steps[-1].number}"


def _rows_of(steps: Sequence[Step]) -> list[str]:
    if len(steps) == 1:
        return _row(steps[0])
    title = f"{len(steps)} x {steps[0].title} … {steps[-1].title.removeprefix(f'{steps[-1].op} ')}"
    spans = (None if step.end is None else step.end - step.begin for step in steps)
    return [title, *_row(steps[0])[1:-2], range_text(spans, format_duration), NONE]


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
