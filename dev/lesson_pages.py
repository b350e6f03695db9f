"""A page of the site for each lesson: script, question, and folded answer with picture and scenario."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from catalogue import first_sentence, size_text  # which lies beside this file
from lesson_pictures import has_picture, picture_file

from lab.features.lessons.lesson import list_code_lines
from lab.features.lessons.question import LETTERS, RunSize, scenario_question
from lab.features.lessons.verb_scenarios import read_chapters
from lab.features.suite.view import escape_markdown
from lab.spec.load import find_scenarios, library_folder, load_scenario
from lab.spec.scenario import Scenario

FOLDER = "lesson"
"""Folder of the site."""


class LessonPage(NamedTuple):
    """One page."""

    name: str
    file: str
    """The scenario, relative to the checkout: `scenarios/scatter.yaml`."""
    text: str
    """Markdown."""
    picture: str
    """SVG; empty if there is none."""


def lesson_pages() -> Iterator[LessonPage]:
    """Yield the pages in the order of the learning path."""
    folder = library_folder()
    chapter_of = {name: chapter for chapter, names in read_chapters(folder).items() for name in names}
    rest = (str(path.relative_to(folder)) for path in find_scenarios([folder]))
    names = list(dict.fromkeys(chain(chapter_of, rest)))
    for number, name in enumerate(names):
        path = folder / name
        scenario = load_scenario(path)
        kept = picture_file(path, scenario)
        picture = kept.read_text(encoding="utf-8") if kept.exists() else ""
        position = (
            f"Lesson {number + 1} of {len(names)} · {chapter_of.get(name, 'More')} · nodes: {size_text(scenario)}"
        )
        text = page_text(path, scenario, position, picture)
        ends = [f"[← {Path(one).stem}]({Path(one).stem}.md)" for one in names[number - 1 : number]]
        ends += [f"[{Path(one).stem} →]({Path(one).stem}.md)" for one in names[number + 1 : number + 2]]
        text += "\n" + " · ".join([*ends, "[all lessons](../scenarios.md)"]).replace("_", "\\_") + "\n"
        yield LessonPage(path.stem, f"{folder.name}/{name}", text, picture if has_picture(picture) else "")


def page_text(path: Path, scenario: Scenario, position: str, picture: str) -> str:
    """The page of a lesson, without its links to the next one.

    Args:
        path: its file.
        scenario: what the file says.
        position: its place on the learning path.
        picture: the picture, or why there is none; empty if nobody has tried to draw it.
    """
    question = scenario_question(scenario)
    code = "\n".join(line for _, line in list_code_lines(scenario))
    choices = [f"- {letter}) {_inline(choice)}" for letter, choice in zip(LETTERS, question.choices, strict=False)]
    size = RunSize(nnodes=scenario.nodes or 1, nproc_per_node=scenario.nproc_per_node or 1)
    right = question.compute_answer(scenario.expect.notes, size)
    learn = " ".join(scenario.learn.split())
    answer = [f"**{_inline(right)}**", ""] if right else []
    answer += [escape_markdown(learn, code=True), ""]
    if has_picture(picture):
        alt = escape(f"Picture of the call that the lesson is about. {first_sentence(learn)}", quote=True)
        answer += [f'<img src="{path.stem}.svg" alt="{alt}">', ""]
    elif picture:
        answer += [f"There is no picture of this lesson: {escape_markdown(picture, code=True)}.", ""]
    source = ["```yaml", path.read_text(encoding="utf-8").rstrip(), "```"]
    lines = [
        f"# {escape_markdown(scenario.name)}",
        "",
        position.replace("_", "\\_"),
        "",
        f"    lab learn {path.stem}          # asks for your prediction, runs, and compares",
        f"    lab run @{path.stem}           # runs it",
        "",
        "## Script",
        "",
        "```python",
        code,
        "```",
        "",
        "## Predict",
        "",
        _inline(question.ask),
        "",
        *choices,
        "",
        '??? question "Answer"',
        "",
        textwrap.indent("\n".join(answer), "    "),
        "",
        '??? example "Scenario"',
        "",
        textwrap.indent("\n".join(source), "    "),
        "",
    ]
    return "\n".join(lines)


def _inline(text: str) -> str:
    return escape_markdown(" ".join(text.split()), code=True)
