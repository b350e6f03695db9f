"""A scenario as a lesson: the question before the run, the answer after it."""

from __future__ import annotations

import textwrap
from dataclasses import replace

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
        [
            str(item.rank),
            item.what.removeprefix("note "),
            format_value(item.got, _LONGEST_VALUE),
            format_value(item.expected, _LONGEST_VALUE),
            "✔" if item.met else "✘",
        ]
        for item in result.expectations
        if item.what.startswith("note ") and item.rank is not None
    ]
    if rows:
        whole = replace(style, width=None)  # what matters stands at the end of a line
        parts.append(table_text(["rank", "note", "holds", "expected", ""], rows, whole))
    unexpected = [
        [str(rank.rank), name, format_value(value, _LONGEST_VALUE)]
        for rank in result.ranks
        for name, value in rank.notes.items()
        if not any(item.what == f"note {name}" for item in result.expectations)
    ]
    if unexpected:
        parts.append(table_text(["rank", "note", "holds"], unexpected, style))
    if result.path is not None and any(item.what == "calls" for item in result.expectations):
        trace = read_trace(Record(path=result.path))
        parts.append(calls_text(trace).replace("calls:", style.paint("what ranks called", "bold"), 1))
    parts.append(verdict_text(result, style))
    return "\n\n".join(parts)


def _wrap(text: str) -> str:
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in text.strip().splitlines())
