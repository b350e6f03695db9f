"""A lesson taken: its question, a prediction, the run, and whether the prediction held; as text and as HTML."""

from __future__ import annotations

import io
import re
import textwrap
import time
from collections.abc import Sequence
from html import escape
from itertools import dropwhile
from pathlib import Path
from tokenize import COMMENT, INDENT, NEWLINE, NL, STRING, TokenError, TokenInfo, generate_tokens
from typing import Any

from lab.cluster import Cluster
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.explain import explain
from lab.errors import LabError, UsageError
from lab.features.calls.notation import calls_text
from lab.features.html.notebook import result_html
from lab.features.lessons.progress import Attempt, LearningPath, keep, kept_of, learning_path, name_of, person_of
from lab.features.lessons.question import LETTERS, Prediction, Question, Size, question_of
from lab.features.pictures.model import picture_of, unrecorded_ranks
from lab.features.pictures.text import picture_text
from lab.frozen import Frozen
from lab.record.read import Record
from lab.record.result import Result
from lab.report.style import Style
from lab.report.table import group_equal, table_text
from lab.report.verdict import verdict_text
from lab.run.collect import Observer
from lab.run.options import RunOptions
from lab.spec.load import find_lesson, open_scenario
from lab.spec.scenario import Scenario
from lab.trace.steps import Step
from lab.words import format_count, format_value, rank_spans


class Taken(Frozen):
    """A lesson that was run."""

    result: Result
    prediction: Prediction
    script: Path
    next: str
    """The lesson to go on with; empty when all are done."""
    problem: str = ""
    """Why this was not kept, a sentence."""

    def to_json(self) -> dict[str, Any]:
        """The result of the run as plain data, with question, prediction, insight and what comes next."""
        return {**self.result.to_json(), **self.prediction.to_json(), "next": self.next, "problem": self.problem}

    def __str__(self) -> str:
        return taken_text(self, Style(colour=False))

    def _repr_html_(self) -> str:
        lines = [*judged_text(self.prediction, self.result, Style(colour=False)), self.prediction.insight, self.problem]
        following = f'Next: lab.learn("{self.next}")' if self.next else ""
        return f"<div>{result_html(self.result)}{_as_html([*lines, following])}</div>"


class Lesson(Frozen):
    """A lesson that can be taken."""

    name: str
    scenario: Scenario
    person: str
    """Whose progress is kept."""
    path: LearningPath

    @property
    def question(self) -> Question:
        """What it asks; with an empty text where it asks nothing."""
        return question_of(self.scenario)

    def take(
        self, said: str, cluster: Cluster, *, observer: Observer | None = None, options: RunOptions | None = None
    ) -> Taken:
        """Run it, hold against the run what was said before it, and keep that.

        Args:
            said: what the person predicts, as `Question.understand` gives it; empty for nothing.
            cluster: where to run it.
            observer: watches the run.
            options: how to run it.

        Raises:
            LabError: the run could not begin.
        """
        result = cluster.run(self.scenario, observer=observer, options=options)
        right = self._right_answer(result)
        prediction = Prediction(
            lesson=self.name,
            question=self.question.ask,
            choices=self.question.choices,
            prediction=said,
            answer=right,
            right=self.question.holds(said, right),
            insight=self.scenario.learn,
        )
        problem = ""
        try:
            if result.path is not None:
                prediction.write(result.path)
            if result.passed:  # otherwise it did not show what it is about
                now = round(time.time(), 3)
                keep(self.person, Attempt(self.name, said, prediction.right, result.run, now))
        except LabError as error:
            problem = str(error)
        following = self.path.next_after(self.name, {*kept_of(self.person).standing, self.name})
        return Taken(result=result, prediction=prediction, script=self.scenario.script, next=following, problem=problem)

    def _right_answer(self, result: Result) -> str:
        """What the run showed to be right; empty where it did not come out as it should, or at a size of its own."""
        nnodes = len({rank.node for rank in result.ranks})
        if not result.passed or not nnodes:
            return ""
        size = Size(nnodes=nnodes, nproc_per_node=len(result.ranks) // nnodes)
        own = Size(nnodes=self.scenario.nodes or nnodes, nproc_per_node=self.scenario.nproc_per_node or 1)
        if self.question.open or (size != own and not self.question.computed):
            return ""
        return self.question.right_answer(self.scenario.expect.notes, size)

    def answer(self, reply: str | float = "", *, engine: str = "auto", **options: Any) -> Taken:
        """Say what you predict, and see; by letter, text or number, or nothing.

        Args:
            reply: one of the choices, a number, or any text, as the question wants.
            engine: `auto`, `docker` or `local`.
            options: those of `Cluster.run`.

        Raises:
            UsageError: the question cannot be answered like that.
            LabError: the run could not begin.
        """
        said = self.question.understand(str(reply))
        return self.take(said, Cluster(engine=engine), options=RunOptions(**options))

    def __str__(self) -> str:
        return question_text(self, Style(colour=False))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _as_html([str(self), "", 'lesson.answer("…") runs it'])


def _as_html(lines: Sequence[str]) -> str:
    return f'<pre style="font-size:12px;white-space:pre-wrap">{escape(chr(10).join(lines))}</pre>'


def learn(name: str | Path, *, person: str | None = None, folder: Path | None = None) -> Lesson:
    """A lesson by its name, such as `scatter`, or by its file.

    Args:
        name: its name, or a scenario's file.
        person: whose progress is kept; by default the user's.
        folder: where to look for it; by default in `scenarios`, then among those that come with the lab.

    Raises:
        UsageError: there is none of that name, or it teaches nothing.
        ScenarioError: it is not valid.
    """
    whose, file = person_of(person), Path(name)
    file = file if file.suffix else find_lesson(str(name), [folder] if folder else None)
    scenario = open_scenario(file)
    if not scenario.learn:
        raise UsageError(f"{scenario.name} is not a lesson", "add `learn:` and `predict:` to it")
    return Lesson(name=name_of(file), scenario=scenario, person=whose, path=learning_path(folder))


_WIDTH = 88
_LONGEST_VALUE = 46
_MOST_NOTES = 16
_MOST_SENTENCES = 3
_TALLEST = 50
"""Lines of a picture that is shown."""


def question_text(lesson: Lesson, style: Style) -> str:
    """Where one is on the path, the script, and the question with what may be answered."""
    scenario, question = lesson.scenario, lesson.question
    size = ""
    if scenario.nodes is not None:
        ranks = scenario.nproc_per_node or 1
        size = format_count(scenario.nodes, "node") + (f", {format_count(ranks, 'rank')} on each" if ranks > 1 else "")
    place = " · ".join(part for part in (lesson.path.place(lesson.name), size) if part)
    head = f"{style.paint(scenario.name, 'bold')}  {style.paint(place, 'dim')}".rstrip()
    numbered = (f"{style.paint(f'{number:>4}', 'dim')}  {line}" for number, line in code_of(scenario))
    parts = [head, f"{style.paint(scenario.script.name, 'bold')}\n" + "\n".join(numbered)]
    if question.ask:
        choices = [f"  {letter}) {choice}" for letter, choice in zip(LETTERS, question.choices, strict=False)]
        parts.append("\n".join([style.paint(wrapped(f"Predict: {question.ask}"), "yellow"), *choices]))
    return "\n\n".join(parts)


def code_of(scenario: Scenario) -> list[tuple[int, str]]:
    """The lines of the script with their numbers, without comments and docstrings, which often tell the answer."""
    text = scenario.script.read_text(encoding="utf-8", errors="replace").rstrip()
    lines, left_out, before = dict(enumerate(text.split("\n"), 1)), list[TokenInfo](), NEWLINE
    try:
        for token in generate_tokens(io.StringIO(text).readline):
            is_docstring = token.type == STRING and before in (NEWLINE, INDENT)
            left_out += [token] if token.type == COMMENT or is_docstring else []
            before = before if token.type in (COMMENT, NL) else token.type
    except (SyntaxError, TokenError):
        return list(lines.items())
    for token in left_out:
        (row, column), (end, _) = token.start, token.end
        lines[row] = lines[row][:column].rstrip()
        for at in range(row + bool(lines[row]), end + 1):
            del lines[at]
    return list(dropwhile(lambda line: not line[1].strip(), lines.items()))


def taken_text(taken: Taken, style: Style) -> str:
    """What the run showed, in numbers, as a picture and in words; whether the prediction held; the insight."""
    result = taken.result
    parts = [verdict_text(result, style), *_notes(result, style)]
    if result.path is not None and result.path.is_dir():
        parts += _shown(result, Record(path=result.path), style)
    script, here = taken.script, Path.cwd()
    script = script.relative_to(here) if script.is_relative_to(here) else script
    more = style.paint(f"the script with its comments: {script}", "dim")
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
    checked = [
        (one.rank, (one.what[5:], _value(one.got), _value(one.expected), "✔" if one.met else "✘"))
        for one in result.expectations
        if one.what.startswith("note ") and one.rank is not None
    ]
    expected = {cells[0] for _, cells in checked}
    noted = [(rank.rank, name, value) for rank in result.ranks for name, value in rank.notes.items()]
    more = [(rank, (name, _value(value))) for rank, name, value in noted if name not in expected]
    return [
        *_table_of_notes(("rank", "note", "holds", "expected", ""), checked, style),
        *_table_of_notes(("rank", "note", "holds"), more, style),
    ]


def _table_of_notes(head: Sequence[str], noted: Sequence[tuple[int, tuple[str, ...]]], style: Style) -> list[str]:
    """The table, in the order in which notes first occur; none where there is nothing."""
    groups = group_equal(noted)
    names = [*dict.fromkeys(cells[0] for _, cells in groups)]
    groups.sort(key=lambda group: names.index(group[1][0]))
    rows = [[", ".join(rank_spans(ranks)), *cells] for ranks, cells in groups]
    if not rows:
        return []
    left = f"\n… and {len(rows) - _MOST_NOTES} more: lab show" if len(rows) > _MOST_NOTES else ""
    # what matters stands at the end of a line, so none is cut
    return [table_text(head, rows[:_MOST_NOTES], style._replace(width=None)) + left]


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
    found = [one for one in every if any(one.words[1:]) or one.to_json() not in result.findings]
    slow = any(one.kind == "straggler" for one in found)
    telling = [one for one in found if not ("usual" in one.kind.properties or (one.kind == "time" and not slow))]
    telling = telling or [one for one in found if one.kind == "account"]
    return [one.sentence for one in telling[:_MOST_SENTENCES]]


def telling_step(steps: Sequence[Step], lesson: str) -> Step | None:
    """The step whose picture shows most of a lesson.

    What never ended; or what the lesson is named after; or what moved data, rather what the script called itself than
    what DDP says to itself.
    """
    broken = [step for step in steps if step.state != "completed"]
    words = {*re.split("[-_]", lesson)}
    moving = [step for step in steps if step.operation.moves_data]
    phases = {step.number: next(iter(step.calls.values())).phase for step in moving}
    own = [step for step in moving if not phases[step.number].startswith("DDP(")]
    named = [step for step in own if {*step.op.split("_")} <= words]
    training = [step for step in own if phases[step.number] == "backward"]
    collectives = [step for step in own if not step.message]
    return next(iter([*broken, *named, *training, *collectives, *moving, *steps]), None)


def wrapped(text: str) -> str:
    """Paragraphs as wide as one likes to read."""
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in text.strip().splitlines())


def _value(value: Any) -> str:
    return format_value(value, _LONGEST_VALUE)
