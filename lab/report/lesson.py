"""A scenario as a lesson: the question before the run, the answer after it."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

from lab.record.read import Record
from lab.record.result import Result
from lab.report.calls_view import calls_text
from lab.report.style import Style
from lab.report.table import table_text
from lab.report.verdict import verdict_text
from lab.spec.scenario import Scenario
from lab.trace.read import read_trace
from lab.words import format_value

_WIDTH = 88
_LONGEST_VALUE = 46


def question_text(scenario: Scenario, style: Style) -> str:
    """What there is to learn, the script, and the question."""
    script = scenario.script.read_text(encoding="utf-8", errors="replace").rstrip()
    numbered = (f"{style.paint(f'{number:>4}', 'dim')}  {line}" for number, line in enumerate(script.splitlines(), 1))
    parts = [
        f"{style.paint(scenario.name, 'bold')}\n{_wrap(scenario.learn)}",
        f"{style.paint(scenario.script.name, 'bold')}\n" + "\n".join(numbered),
    ]
    if scenario.predict:
        parts.append(style.paint(_wrap(f"Predict: {scenario.predict}"), "yellow"))
    return "\n\n".join(parts)


def answer_text(result: Result, prediction: str, style: Style) -> str:
    """What every rank held, beside what was expected."""
    parts = []
    if prediction:
        parts.append(f"{style.paint('you predicted', 'bold')}  {prediction}")
    rows = [
        [str(one.rank), one.what.removeprefix("note "), _value(one.got), _value(one.expected), "✔" if one.met else "✘"]
        for one in result.expectations
        if one.what.startswith("note ") and one.rank is not None
    ]
    if rows:
        whole = replace(style, width=None)  # what matters stands at the end of a line
        parts.append(table_text(["rank", "note", "holds", "expected", ""], rows, whole))
    expected = {one.what for one in result.expectations}
    notes = [(str(rank.rank), *note) for rank in result.ranks for note in rank.notes.items()]
    unexpected = [[rank, name, _value(value)] for rank, name, value in notes if f"note {name}" not in expected]
    if unexpected:
        parts.append(table_text(["rank", "note", "holds"], unexpected, style))
    if result.path is not None and "calls" in expected:
        trace = read_trace(Record(path=result.path))
        parts.append(calls_text(trace).replace("calls:", style.paint("what ranks called", "bold"), 1))
    parts.append(verdict_text(result, style))
    return "\n\n".join(parts)


def _value(value: Any) -> str:
    return format_value(value, _LONGEST_VALUE)


def _wrap(text: str) -> str:
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in text.strip().splitlines())
