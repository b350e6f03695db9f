"""A lesson in a notebook: its script and question; what came of it; as plain HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lab.features.lessons.question import LETTERS
from lab.features.lessons.text import code_of, judged_text
from lab.features.notebook.show import result_html
from lab.report.style import Style

if TYPE_CHECKING:
    from lab.features.lessons.take import Lesson, Taken

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
