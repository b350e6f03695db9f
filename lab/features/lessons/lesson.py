"""A lesson: its question, a prediction, the run, and whether the prediction was right, as text and as HTML."""

from __future__ import annotations

import io
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
from lab.diagnosis.explain import explain_run
from lab.errors import LabError, UsageError
from lab.features.calls.notation import calls_text
from lab.features.html.page import result_html
from lab.features.lessons import progress
from lab.features.lessons.progress import Attempt, LearningPath, lesson_name
from lab.features.lessons.question import LETTERS, Prediction, Question, RunSize, scenario_question
from lab.features.pictures.text import choose_step, draw_step
from lab.frozen import Frozen
from lab.record.read import Record
from lab.record.result import Result
from lab.report.style import Style, group_equal, table_text
from lab.report.verdict import verdict_text
from lab.run.collect import Observer
from lab.run.options import RunOptions
from lab.spec.load import find_lesson, open_scenario
from lab.spec.scenario import Scenario
from lab.words import format_count, format_value, rank_spans


class LessonResult(Frozen):
    """A lesson that was run."""

    result: Result
    prediction: Prediction
    script: Path
    next: str
    """The next lesson; empty when all are done."""
    problem: str = ""
    """A sentence that says why the result was not stored; empty if it was."""

    def to_json(self) -> dict[str, Any]:
        """Return the result of the run as plain data, with question, prediction, insight, and the next lesson."""
        return {**self.result.to_json(), **self.prediction.to_json(), "next": self.next, "problem": self.problem}

    def __str__(self) -> str:
        return lesson_result_text(self, Style(colour=False))

    def _repr_html_(self) -> str:
        judgment = render_judgment(self.prediction, self.result, Style(colour=False))
        lines = [*judgment, self.prediction.insight, self.problem]
        next_lesson = f'Next: lab.learn("{self.next}")' if self.next else ""
        return f"<div>{result_html(self.result)}{_preformatted([*lines, next_lesson])}</div>"


class Lesson(Frozen):
    """A lesson to run."""

    name: str
    scenario: Scenario
    person: str
    """The person whose progress is stored."""
    path: LearningPath

    @property
    def question(self) -> Question:
        """The question of the lesson; its text is empty if the lesson asks nothing."""
        return scenario_question(self.scenario)

    def run(
        self, reply: str, cluster: Cluster, *, observer: Observer | None = None, options: RunOptions | None = None
    ) -> LessonResult:
        """Run the lesson, compare the run with the prediction, and store the result.

        Args:
            reply: The prediction, as `Question.parse_reply` returns it; empty for none.
            cluster: The cluster to run it on.
            observer: Watches the run.
            options: The options of the run.

        Raises:
            LabError: The run could not start.
        """
        result = cluster.run(self.scenario, observer=observer, options=options)
        right = self._compute_answer(result)
        prediction = Prediction(
            lesson=self.name,
            question=self.question.ask,
            choices=self.question.choices,
            prediction=reply,
            answer=right,
            right=self.question.is_right(reply, right),
            insight=self.scenario.learn,
        )
        problem = ""
        try:
            if result.path is not None:
                prediction.write(result.path)
            if result.passed:  # a run that did not pass did not show what the lesson teaches
                now = round(time.time(), 3)
                progress.record_attempt(self.person, Attempt(self.name, reply, prediction.right, result.run, now))
        except LabError as error:
            problem = str(error)
        following = self.path.next_after(self.name, {*progress.read_progress(self.person).counted_attempts, self.name})
        script = self.scenario.script
        return LessonResult(result=result, prediction=prediction, script=script, next=following, problem=problem)

    def _compute_answer(self, result: Result) -> str:
        """Return the answer that the run shows to be right.

        It is empty if the run did not pass, or if it had another size and the answer holds only for the lesson's own
        size.
        """
        nnodes = len({rank.node for rank in result.ranks})
        if not result.passed or not nnodes:
            return ""
        size = RunSize(nnodes=nnodes, nproc_per_node=len(result.ranks) // nnodes)
        lesson_size = RunSize(nnodes=self.scenario.nodes or nnodes, nproc_per_node=self.scenario.nproc_per_node or 1)
        if self.question.is_open or (size != lesson_size and not self.question.is_computed):
            return ""
        return self.question.compute_answer(self.scenario.expect.notes, size)

    def answer(self, reply: str | float = "", *, engine: str = "auto", **options: Any) -> LessonResult:
        """Answer the question, run the lesson, and return what it showed.

        Args:
            reply: One of the choices, a number, or any text, depending on the question.
            engine: `auto`, `docker`, or `local`.
            options: The options of `Cluster.run`.

        Raises:
            UsageError: The question does not allow this reply.
            LabError: The run could not start.
        """
        reply = self.question.parse_reply(str(reply))
        return self.run(reply, Cluster(engine=engine), options=RunOptions(**options))

    def __str__(self) -> str:
        return question_text(self, Style(colour=False))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _preformatted([str(self), "", 'lesson.answer("…") runs it'])


def _preformatted(lines: Sequence[str]) -> str:
    return f'<pre style="font-size:12px;white-space:pre-wrap">{escape(chr(10).join(lines))}</pre>'


def learn(name: str | Path, *, person: str | None = None) -> Lesson:
    """Load a lesson by its name, such as `scatter`, or by its file.

    Args:
        name: The name of the lesson, or the file of a scenario.
        person: The person whose progress is stored; by default the user.

    Raises:
        UsageError: No lesson has that name, or the scenario has no key `learn`.
        ScenarioError: The scenario is not valid.
    """
    person_name, file = progress.resolve_person(person), Path(name)
    file = file if file.suffix else find_lesson(str(name))
    scenario = open_scenario(file)
    if not scenario.learn:
        raise UsageError(f"{scenario.name} is not a lesson", "add `learn:` and `predict:` to it")
    return Lesson(name=lesson_name(file), scenario=scenario, person=person_name, path=progress.load_learning_path())


_WIDTH = 88
_LONGEST_VALUE = 46
_MOST_NOTES = 16
_MOST_SENTENCES = 3


def question_text(lesson: Lesson, style: Style, options: RunOptions | None = None) -> str:
    """Render the position on the path, the script, and the question with its choices.

    Args:
        lesson: The lesson.
        style: How to paint it.
        options: Options of the run, which may set its size.
    """
    scenario, question = lesson.scenario, lesson.question
    options = options or RunOptions()
    nodes, size, asked = options.nodes or scenario.nodes, "", "Predict"
    if nodes is not None:
        ranks = options.nproc_per_node or scenario.nproc_per_node or 1
        size = format_count(nodes, "node") + (f", {format_count(ranks, 'rank')} on each" if ranks > 1 else "")
        asked = f"Predict, with {format_count(nodes * ranks, 'rank')}"
    position = " · ".join(part for part in (lesson.path.describe_position(lesson.name), size) if part)
    head = f"{style.paint(scenario.name, 'bold')}  {style.paint(position, 'dim')}".rstrip()
    numbered = (f"{style.paint(f'{number:>4}', 'dim')}  {line}" for number, line in list_code_lines(scenario))
    parts = [head, f"{style.paint(scenario.script.name, 'bold')}\n" + "\n".join(numbered)]
    if question.ask:
        choices = [f"  {letter}) {choice}" for letter, choice in zip(LETTERS, question.choices, strict=False)]
        parts.append("\n".join([style.paint(wrap_text(f"{asked}: {question.ask}"), "yellow"), *choices]))
    return "\n\n".join(parts)


def list_code_lines(scenario: Scenario) -> list[tuple[int, str]]:
    """Return the numbered lines of the script, without comments and docstrings, which often give away the answer."""
    text = scenario.script.read_text(encoding="utf-8", errors="replace").rstrip()
    lines, removed, previous = dict(enumerate(text.split("\n"), 1)), list[TokenInfo](), NEWLINE
    try:
        for token in generate_tokens(io.StringIO(text).readline):
            is_docstring = token.type == STRING and previous in (NEWLINE, INDENT)
            removed += [token] if token.type == COMMENT or is_docstring else []
            previous = previous if token.type in (COMMENT, NL) else token.type
    except (SyntaxError, TokenError):
        return list(lines.items())
    for token in removed:
        (row, column), (end, _) = token.start, token.end
        lines[row] = lines[row][:column].rstrip()
        for at in range(row + bool(lines[row]), end + 1):
            del lines[at]
    return list(dropwhile(lambda line: not line[1].strip(), lines.items()))


def lesson_result_text(done: LessonResult, style: Style) -> str:
    """Render what the run showed in numbers, as a picture, and in words; then the prediction and the insight."""
    result = done.result
    parts = [verdict_text(result, style), *_notes(result, style)]
    if result.path is not None and result.path.is_dir():
        parts += _record_parts(result, Record(path=result.path), done.prediction.answer, style)
    script, here = done.script, Path.cwd()
    script = script.relative_to(here) if script.is_relative_to(here) else script
    hint = style.paint(f"the script with its comments: {script}", "dim")
    asked = f"With {format_count(len(result.ranks), 'rank')}: {done.prediction.question}"
    question = [style.paint(wrap_text(asked), "yellow")] if done.prediction.question else []
    judgment = render_judgment(done.prediction, result, style)
    parts.append("\n".join([*question, *judgment, wrap_text(done.prediction.insight), hint]))
    if done.problem:
        parts.append(style.paint(done.problem, "yellow"))
    return "\n\n".join(parts)


def render_judgment(prediction: Prediction, result: Result, style: Style) -> list[str]:
    """Render whether the prediction was right; empty without a prediction and without a right answer."""
    reply, answer = prediction.prediction, prediction.answer
    if not result.passed:
        message = "The run did not end as the lesson expects, so the lab does not judge your prediction."
        return [style.paint(wrap_text(message), "yellow")] if reply else []
    if prediction.right is None:
        answer_line = [f"The answer: {answer}"] if answer else []
        predicted = [f"You predicted: {reply}"] if reply else []
        return [style.paint(wrap_text(line), "bold") for line in (*predicted, *answer_line)]
    if prediction.right:
        return [style.paint(wrap_text(f"✔ Your prediction is right: {reply}"), "green", "bold")]
    return [style.paint(wrap_text(f"✘ You predicted: {reply}"), "red", "bold"), wrap_text(f"The answer: {answer}")]


def _notes(result: Result, style: Style) -> list[str]:
    """Render a table of the notes of ranks, of which equal ones share a row; empty without notes."""
    noted = (
        (rank.rank, (name, format_value(value, _LONGEST_VALUE)))
        for rank in result.ranks
        for name, value in rank.notes.items()
    )
    if not (rows := [[", ".join(rank_spans(ranks)), *note] for ranks, note in group_equal(noted)]):
        return []
    rest = f"\n… and {len(rows) - _MOST_NOTES} more: lab show" if len(rows) > _MOST_NOTES else ""
    # The end of a line matters most, so no line is cut.
    return [table_text(("rank", "note", "value"), rows[:_MOST_NOTES], style._replace(width=None)) + rest]


def _record_parts(result: Result, record: Record, answer: str, style: Style) -> list[str]:
    """Render what the record adds: the calls if the lesson is about them, a picture, and what happened."""
    evidence = read_evidence(record)
    parts = []
    if any(one.what == "calls" for one in result.expectations):
        parts.append(calls_text(evidence.trace).replace("calls:", style.paint("what ranks called", "bold"), 1))
    if (step := choose_step(evidence.steps, result.scenario, answer)) is not None:
        parts.append(draw_step(step, record, evidence.trace, style, len(evidence.steps)))
    if sentences := select_sentences(result, record, evidence):
        lines = [textwrap.fill(one, _WIDTH, initial_indent="  - ", subsequent_indent="    ") for one in sentences]
        parts.append("\n".join([style.paint("what happened", "bold"), *lines]))
    return parts


def select_sentences(result: Result, record: Record, evidence: Evidence) -> list[str]:
    """Return the first sentences of the explanation that neither repeat the verdict nor hold for every run.

    The finding about time counts only if there is a straggler.
    """
    all_findings = explain_run(record, evidence).findings
    news = [one for one in all_findings if any(one.words[1:]) or one.to_json() not in result.findings]
    slow = any(one.kind == "straggler" for one in news)
    relevant = [one for one in news if not ("usual" in one.kind.properties or (one.kind == "time" and not slow))]
    relevant = relevant or [one for one in news if one.kind == "account"]
    return [one.sentence for one in relevant[:_MOST_SENTENCES]]


def wrap_text(text: str) -> str:
    """Wrap each paragraph to a readable width."""
    return "\n".join(textwrap.fill(paragraph, _WIDTH) for paragraph in text.strip().splitlines())
