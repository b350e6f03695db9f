"""Pictures of steps for a terminal: which ones, and ranks as rows with boxes in the colors of the data's ranks."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from lab.feature import find_view
from lab.features.pictures import model
from lab.features.pictures.layout import Drawing, Pen, lay_out, stack_all
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, RankPicture
from lab.record.read import Record
from lab.report.style import Style, rank_style
from lab.trace.model import Trace
from lab.trace.steps import Step

_BAR_COLUMNS = 24
_MOST_RANKS = 12
_WIDEST = 120
"""Columns if the output is not a terminal."""

Paints = tuple[str, ...]
_FORMS = (
    Form(32, 16), Form(32, 16, stacked=True), Form(12, 16), Form(12, 16, stacked=True), Form(8, 16),
    Form(8, 16, stacked=True), Form(6, 8), Form(4, 8), Form(6, 8, stacked=True), Form(4, 8, stacked=True),
    Form(2, 8, stacked=True), Form(4, 8, stacked=True, wrapped=True), Form(2, 4, stacked=True, wrapped=True),
)  # fmt: skip
"""From generous to compact."""
_PAINTS: dict[str, Paints] = {"bad": ("red", "bold"), "good": ("green",), "warn": ("yellow",), "left out": ()}
_JOINTS = {("┐", "┌"): "┬", ("┘", "└"): "┴"}
"""The corners of adjacent boxes merge into these."""


def picture_text(picture: Picture, style: Style, steps: int = 0) -> str:
    """Render a heading, what the operation does, every rank's tensors before and after, and whether they are right.

    Args:
        picture: The picture to render.
        style: How to paint it, and the width of the terminal.
        steps: Number of steps of the run, which the heading shows if it is above 0.
    """
    width = style.width or _WIDEST
    number = f"step {picture.step.number}{f' of {steps}' if steps else ''}:"
    lines = [f"{style.paint(number, 'dim')} {style.paint(picture.step.title, 'bold')}"]
    lines += [style.paint(line, "dim") for text in model.render_heading(picture) for line in textwrap.wrap(text, width)]
    lines += textwrap.wrap(model.describe_operation(picture), width)
    lines += ["", "\n".join(_paint_lines(_body(picture, width), style)).rstrip(), ""]
    kind, text = model.judge_outputs(picture)
    if text:
        sign, colour = {"good": ("✔", "green"), "bad": ("✘", "red")}.get(kind, ("?", "yellow"))
        lines += [style.paint(line, colour) for line in textwrap.wrap(f"{sign} {text}", width, subsequent_indent="  ")]
    for remark in model.list_remarks(picture):
        lines += textwrap.wrap(remark, width, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines).rstrip()


def _body(picture: Picture, width: int) -> Drawing:
    if any(rank.before or rank.after for rank in picture.ranks):
        contents = Contents(picture, _MOST_RANKS)
        return lay_out(_FORMS, lambda form: _Pen(contents, form, width), width)[1]
    rows = []  # the waits are all that a barrier shows
    waits = model.list_waits(picture)
    name_width = max(len(f"rank {rank}") for rank, _, _ in waits)
    for rank, text, share in waits:
        bar = "█" * max(1, round(share * _BAR_COLUMNS)) if share else "▏"
        name = _line(f"  rank {rank}", (rank_style(rank),)).pad_to(name_width + 2)
        rows.append(name.left_of(_line(bar, (rank_style(rank),)), 2).left_of(_line(text), 1))
    return stack_all(rows)


def _line(text: str, paints: Paints = ()) -> Drawing:
    return Drawing(len(text), 1, ((0, 0, (text, paints)),))


def _paint_lines(drawing: Drawing, style: Style) -> list[str]:
    """Return the lines of a drawing."""
    letters: dict[tuple[int, int], tuple[str, Paints]] = defaultdict(lambda: (" ", ()))
    for x, y, (text, paints) in drawing.items:
        for at, letter in enumerate(text, int(x)):
            letters[int(y), at] = _JOINTS.get((letters[int(y), at][0], letter), letter), paints
    lines = []
    for y in range(int(drawing.height)):
        row = [letters[y, x] for x in range(int(drawing.width))]
        while row and row[-1][0] == " ":
            row.pop()
        runs = groupby(row, key=lambda one: one[1])
        lines.append("".join(style.paint("".join(letter for letter, _ in run), *paints) for paints, run in runs))
    return lines


class _Pen(Pen):
    """Draws one picture in columns and lines."""

    indent, names_gap, arrow, arrow_width = 2, 2, " ──▶ ", 5
    tensor_gap, box_gap, line_gap, row_gap, side_gap = 1, -1, 0, 0, 1

    def __init__(self, contents: Contents, form: Form, width: int) -> None:
        super().__init__(contents, form, math.inf)
        if form.wrapped:
            self.max_width = width - self.names - self.names_gap

    def cell_width(self, text: str) -> float:
        return len(text) + 1

    def draw_name(self, rank: RankPicture) -> Drawing:
        name = _line(f"  rank {rank.rank}", (rank_style(rank.rank),))
        return Drawing(0, 1).above(name).above(_line(f"  {model.below_name(self.picture, rank)}", ("dim",)))

    def draw_head(self, *, after: bool) -> Drawing:
        kind = model.kind_text(self.picture, after=after)
        return _line(f"{'after' if after else 'before'}{': ' if kind else ''}{kind}", ("bold",))

    def draw_words(self, words: str, style_name: str, *, low: bool = False) -> Drawing:
        return Drawing(0, int(low)).above(_line(words, _PAINTS.get(style_name, ("dim",))))

    def draw_box(self, box: Box | None, columns: Sequence[float], owner: tuple[int, bool]) -> Drawing:
        if box is None:
            return stack_all(_line(text, ("dim",)) for text in ("┌───┐", f"│ {ELLIPSIS} │", "└───┘"))
        part, label = box.part, f" {box.label} "
        paints = ("bold",) if part.reduced else (rank_style(part.origins[0]),) if part.sources else ("dim",)
        inner = int(max(len(label), sum(columns))) + 1
        lines = f"┌{label.ljust(inner, '─')}┐", f"│{' ' * inner}│", f"└{'─' * inner}┘"
        drawing, x = stack_all(_line(line, paints) for line in lines), 2.0
        for cell, width in zip(box.cells, columns, strict=False):
            value = _line(cell.text, ("red", "bold") if cell.is_mismatch else paints)
            drawing = drawing._replace(items=drawing.items + value.shift_items(x, 1))
            x += width
        return drawing


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
    context = record.result().expectations, trace.world_size, model.unrecorded_ranks(trace)
    text = picture_text(model.picture_of(step, *context), style, steps)
    hint = f"the picture of step {step.number} is too long for this view: lab show {record.run} --step {step.number}"
    return text if text.count("\n") < _TALLEST else style.paint(hint, "dim")
