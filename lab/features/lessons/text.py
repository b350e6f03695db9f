"""A lesson on a terminal and in a notebook: its script and question, what the run showed, and what it teaches."""

from __future__ import annotations

import ast
import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import dropwhile, groupby
from pathlib import Path
from tokenize import COMMENT, TokenError, generate_tokens
from typing import TYPE_CHECKING, Any

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.explain import explain
from lab.diagnosis.finding import FindingKind
from lab.diagnosis.wording import says_more
from lab.features.calls.show_view import calls_text
from lab.features.lessons.question import LETTERS, Prediction, Question
from lab.features.notebook.show import result_html
from lab.features.pictures.model import picture_of, unrecorded_ranks
from lab.features.pictures.text import picture_text
from lab.record.read import Record
from lab.record.result import Result
from lab.report.style import Style
from lab.report.table import table_text
from lab.report.verdict import verdict_text
from lab.spec.scenario import Scenario
from lab.trace.steps import Step
from lab.words import format_value, plural, rank_spans

if TYPE_CHECKING:
    from lab.features.lessons.take import Lesson, Taken

_WIDTH = 88
_LONGEST_VALUE = 46
_MOST_NOTES = 16
_MOST_SENTENCES = 3
_TALLEST = 50
"""Lines of a picture that is shown."""


def question_text(lesson: Lesson, style: Style) -> str:
    """Where one is on the path, the script, and the question."""
    scenario = lesson.scenario
    place = " · ".join(part for part in (lesson.path.place(lesson.name), size_text(scenario)) if part)
    head = f"{style.paint(scenario.name, 'bold')}  {style.paint(place, 'dim')}".rstrip()
    numbered = (f"{style.paint(f'{number:>4}', 'dim')}  {line}" for number, line in code_of(scenario))
    script = f"{style.paint(scenario.script.name, 'bold')}\n" + "\n".join(numbered)
    return "\n\n".join([head, script, *asked_text(lesson.question, style)])


def size_text(scenario: Scenario) -> str:
    """`3 nodes, 2 ranks on each`; empty where the cluster decides."""
    if scenario.nodes is None:
        return ""
    ranks = scenario.nproc_per_node or 1
    return plural(scenario.nodes, "node") + (f", {plural(ranks, 'rank')} on each" if ranks > 1 else "")


def code_of(scenario: Scenario) -> list[tuple[int, str]]:
    """The lines of the script with their numbers, without comments and docstrings, which often tell the answer."""
    text = scenario.script.read_text(encoding="utf-8", errors="replace").rstrip()
    lines = dict(enumerate(text.split("\n"), 1))
    try:
        tree = ast.parse(text)
        comments = [one.start for one in generate_tokens(io.StringIO(text).readline) if one.type == COMMENT]
    except (SyntaxError, ValueError, RecursionError, TokenError):
        return list(lines.items())
    for row, column in comments:
        lines[row] = lines[row][:column].rstrip()
        if not lines[row]:
            del lines[row]
    for part in ast.walk(tree):
        said = _docstring(part)
        for row in range(said.lineno, (said.end_lineno or 0) + 1) if said is not None else ():
            lines.pop(row, None)
    return list(dropwhile(lambda line: not line[1].strip(), lines.items()))


def _docstring(part: ast.AST) -> ast.Expr | None:
    """The statement that documents a module, class or function, if it has lines of its own and is not all."""
    if not isinstance(part, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    first = part.body[0] if len(part.body) > 1 else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    return first if isinstance(first.value.value, str) and first.lineno > getattr(part, "lineno", 0) else None


def asked_text(question: Question, style: Style) -> list[str]:
    """The question and what may be answered."""
    if not question.ask:
        return []
    asked = style.paint(wrapped(f"Predict: {question.ask}"), "yellow")
    width = max(map(len, question.choices), default=0)
    rows = [
        f"  {letter}) {choice:<{width}}".rstrip() for letter, choice in zip(LETTERS, question.choices, strict=False)
    ]
    return ["\n".join([asked, *rows])]


def taken_text(taken: Taken, style: Style) -> str:
    """What the run showed, in numbers, as a picture and in words; whether the prediction held; the insight."""
    result = taken.result
    parts = [verdict_text(result, style), *_notes(result, style)]
    if result.path is not None and result.path.is_dir():
        parts += _shown(result, Record(path=result.path), style)
    more = style.paint(f"the script with its comments: {_shortest(taken.script)}", "dim")
    parts.append("\n".join([*judged_text(taken.prediction, result, style), wrapped(taken.prediction.insight), more]))
    if taken.problem:
        parts.append(style.paint(taken.problem, "yellow"))
    return "\n\n".join(parts)


def judged_text(prediction: Prediction, result: Result, style: Style) -> list[str]:
    """Whether the prediction held, in a sentence; nothing where nothing was predicted and nothing is right."""
    said, right = prediction.prediction, prediction.answer
    if not result.passed:
        told = "The run did not come out as the lesson wants it, so nothing is held against your prediction."
        return [style.paint(wrapped(told), "yellow")] if said else []
    if prediction.right is None:
        known = [f"Right is: {right}"] if right else []
        kept = [f"You predicted: {said}"] if said else []
        return [style.paint(wrapped(line), "bold") for line in (*kept, *known)]
    if prediction.right:
        return [style.paint(wrapped(f"✔ Your prediction held: {said}"), "green", "bold")]
    return [style.paint(wrapped(f"✘ You predicted: {said}"), "red", "bold"), wrapped(f"Right is: {right}")]


def _notes(result: Result, style: Style) -> list[str]:
    """What ranks noted, beside what was expected; ranks that noted the same, in one row."""
    whole = style._replace(width=None)  # what matters stands at the end of a line
    noted = [one for one in result.expectations if one.what.startswith("note ") and one.rank is not None]
    rows = [
        (one.rank or 0, [one.what[5:], _value(one.got), _value(one.expected), "✔" if one.met else "✘"]) for one in noted
    ]
    expected = {one.what for one in noted}
    others = [(rank.rank, *note) for rank in result.ranks for note in rank.notes.items()]
    more = [(rank, [name, _value(value)]) for rank, name, value in others if f"note {name}" not in expected]
    tables = [(("rank", "note", "holds", "expected", ""), rows), (("rank", "note", "holds"), more)]
    return [_table(head, _together(found), whole) for head, found in tables if found]


def _table(head: Sequence[str], rows: list[list[str]], style: Style) -> str:
    text = table_text(head, rows[:_MOST_NOTES], style)
    return text if len(rows) <= _MOST_NOTES else f"{text}\n… and {len(rows) - _MOST_NOTES} more: lab show"


def _together(rows: Sequence[tuple[int, list[str]]]) -> list[list[str]]:
    """Rows that say the same of several ranks as one, in the order of their notes."""
    ordered = sorted(rows, key=lambda row: [one[1][0] for one in rows].index(row[1][0]))
    found: list[list[str]] = []
    for _, same_note in groupby(ordered, key=lambda row: row[1][0]):
        ranks: dict[tuple[str, ...], list[int]] = {}
        for rank, cells in same_note:
            ranks.setdefault(tuple(cells), []).append(rank)
        found += [[", ".join(rank_spans(who)), *cells] for cells, who in ranks.items()]
    return found


def _shown(result: Result, record: Record, style: Style) -> list[str]:
    """What the record of a run adds: its calls where the lesson is about them, a picture, and what happened."""
    evidence = read_evidence(record)
    parts = []
    if any(one.what == "calls" for one in result.expectations):
        calls = calls_text(evidence.trace)
        parts.append(calls.replace("calls:", style.paint("what ranks called", "bold"), 1))
    step = telling_step(evidence.steps, result.scenario)
    if step is not None:
        picture = picture_of(step, result.expectations, len(result.ranks), unrecorded_ranks(evidence.trace))
        drawn = picture_text(picture, style, len(evidence.steps))
        hint = f"the picture of step {step.number} is long: lab show --step {step.number}"
        parts.append(drawn if drawn.count("\n") < _TALLEST else style.paint(hint, "dim"))
    told = what_happened(result, record, evidence)
    if told:
        lines = [textwrap.fill(one, _WIDTH, initial_indent="  - ", subsequent_indent="    ") for one in told]
        parts.append("\n".join([style.paint("what happened", "bold"), *lines]))
    return parts


def what_happened(result: Result, record: Record, evidence: Evidence) -> list[str]:
    """The first sentences of the explanation, without what the verdict has said or what is true of every run.

    Where the time went means something where somebody was slow.
    """
    every = explain(record, evidence).findings
    found = [one for one in every if says_more(one) or one.to_json() not in result.findings]
    slow = any(one.kind == "straggler" for one in found)
    telling = [one for one in found if not ("usual" in one.kind.properties or (one.kind == "time" and not slow))]
    telling = telling or [one for one in found if one.kind is FindingKind.ACCOUNT]
    return [one.sentence for one in telling[:_MOST_SENTENCES]]


def telling_step(steps: Sequence[Step], lesson: str) -> Step | None:
    """The step whose picture shows most of a lesson.

    What never ended; or what the lesson is named after; or what moved data, rather what the script called itself than
    what DDP says to itself.
    """
    broken = [step for step in steps if step.state != "completed"]
    if broken:
        return broken[0]
    words = re.split("[-_]", lesson)
    moving = [step for step in steps if step.operation.moves_data]
    own = [step for step in moving if not _phase(step).startswith("DDP(")]
    named = [step for step in own if set(step.op.split("_")) <= set(words)]
    training = [step for step in own if _phase(step) == "backward"]
    collectives = [step for step in own if not step.message]
    return next(iter([*named, *training, *collectives, *moving, *steps]), None)


def _phase(step: Step) -> str:
    return next(iter(step.calls.values())).phase


def wrapped(text: str) -> str:
    """Paragraphs as wide as one likes to read."""
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in text.strip().splitlines())


def _shortest(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _value(value: Any) -> str:
    return format_value(value, _LONGEST_VALUE)


_CODE = "font:12px/1.45 ui-monospace,monospace;white-space:pre-wrap;margin:4px 0"


def lesson_html(lesson: Lesson) -> str:
    """The script and the question."""
    numbered = "\n".join(f"{number:>4}  {line}" for number, line in code_of(lesson.scenario))
    place = lesson.path.place(lesson.name)
    head = f"<div><b>{escape(lesson.scenario.name)}</b> {escape(place)}</div>"
    code = f'<pre style="{_CODE}">{escape(numbered)}</pre>'
    choices = "".join(
        f"<div>{letter}) {escape(choice)}</div>"
        for letter, choice in zip(LETTERS, lesson.question.choices, strict=False)
    )
    asked = f"<div><b>Predict:</b> {escape(lesson.question.ask)}</div>{choices}" if lesson.question.ask else ""
    return f'<div>{head}{code}{asked}<div style="opacity:.6;font-size:12px">lesson.answer("…") runs it</div></div>'


def taken_html(taken: Taken) -> str:
    """What the run showed, whether the prediction held, and what there is to learn."""
    judged = "".join(
        f"<div><b>{escape(line)}</b></div>" for line in judged_text(taken.prediction, taken.result, Style(colour=False))
    )
    following = f'<div>Next: lab.learn("{escape(taken.next)}")</div>' if taken.next else ""
    problem = f"<div>{escape(taken.problem)}</div>" if taken.problem else ""
    told = f"<div>{escape(taken.prediction.insight)}</div>"
    return f"<div>{result_html(taken.result)}{judged}{told}{problem}{following}</div>"
