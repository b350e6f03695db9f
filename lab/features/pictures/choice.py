"""Choose the steps of a run whose pictures `lab show` prints."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Sequence
from itertools import groupby

from lab.feature import find_view
from lab.record.read import Record
from lab.report.style import Style
from lab.trace.model import Trace
from lab.trace.steps import Step

_MOST_KINDS = 6
"""A run with more kinds of steps is too long for pictures of all of them."""
_MOST_PICTURES = 3
_TALLEST = 50
"""A picture with more lines than this is not printed."""


def run_pictures(record: Record, trace: Trace, steps: Sequence[Step], style: Style, used_lines: int) -> list[str]:
    """Draw the step that a lesson is about, or the steps of a short run.

    Args:
        record: The record of the run.
        trace: Its trace.
        steps: Its steps.
        style: How to paint them; on a terminal, all pictures but the first have to fit on its screen.
        used_lines: Lines of the screen that are used already.
    """
    chosen, read_lesson = choose_few_steps(steps), find_view("lesson")
    lesson = read_lesson(record) if read_lesson else None
    if lesson and lesson.lesson and (step := choose_step(steps, record.result().scenario, lesson.answer)):
        chosen = [step]
    texts = [draw_step(step, record, trace, style, len(steps)) for step in chosen]
    height = shutil.get_terminal_size().lines if style.width is not None else math.inf
    while len(texts) > 1 and used_lines + sum(text.count("\n") + 2 for text in texts) > height:
        texts.pop()
    return texts


def choose_step(steps: Sequence[Step], lesson: str, answer: str = "") -> Step | None:
    """Return the step whose picture shows most of a lesson.

    A step from which a rank got the right answer comes first, then a step that never ended, then a step that the lesson
    is named after, then a step that moved data. The script's own calls come before those that DDP makes internally.

    Args:
        steps: The steps of the run.
        lesson: The name of the scenario.
        answer: The right answer to the question of the lesson; empty if it is unknown.
    """
    unfinished = [step for step in steps if step.state != "completed"]
    words = {*re.split("[-_]", lesson)}
    moving = [step for step in steps if step.operation.moves_data]
    phases = {step.number: next(iter(step.calls.values())).phase for step in moving}
    script_calls = [step for step in moving if not phases[step.number].startswith("DDP(")]
    named_after = [step for step in script_calls if {*step.op.split("_")} <= words]
    training = [step for step in script_calls if phases[step.number] == "backward"]
    collectives = [step for step in script_calls if not step.message]
    answering = [step for step in moving if answer and step.state == "completed" and _yields(step, answer)]
    return next(iter([*answering, *unfinished, *named_after, *training, *collectives, *moving, *steps]), None)


def _yields(step: Step, answer: str) -> bool:
    """Return whether the outputs of a rank are the answer; a group of one rank shows nothing."""
    outputs = ([value for buffer in call.outputs for value in buffer.values or ()] for call in step.calls.values())
    return len(step.group.ranks) > 1 and any(str(output).strip("[]") == answer.strip("[]") for output in outputs)


def choose_few_steps(steps: Sequence[Step]) -> list[Step]:
    """Return up to three steps of a short run: the first of equal ones in a row; incomplete ones take precedence."""
    kinds = [next(row) for _, row in groupby(steps, step_kind)]
    moving = [step for step in kinds if step.operation.moves_data or step.state != "completed"] or kinds
    first = sorted(moving, key=lambda step: step.state == "completed")[:_MOST_PICTURES]
    return sorted(first, key=lambda step: step.number) if len(kinds) <= _MOST_KINDS else []


def step_kind(step: Step) -> tuple[object, ...]:
    """Return a key that is equal for steps that do the same at the same line of the script, with other values."""
    call = next(iter(step.calls.values()))
    return step.op, step.group.name, call.source, call.bytes, step.source, step.destination, step.state


def draw_step(step: Step, record: Record, trace: Trace, style: Style, steps: int) -> str:
    """Draw a step of a run that is over; if the picture is long, name the command that prints it."""
    from lab.features.pictures.model import picture_of, unrecorded_ranks
    from lab.features.pictures.text import picture_text

    picture = picture_of(step, record.result().expectations, trace.world_size, unrecorded_ranks(trace))
    text = picture_text(picture, style, steps)
    hint = f"the picture of step {step.number} is too long for this view: lab show {record.run} --step {step.number}"
    return text if text.count("\n") < _TALLEST else style.paint(hint, "dim")
