"""A picture of one step for a terminal: ranks as rows, boxes in the colors of the ranks whose data they hold."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from lab.features.pictures import model
from lab.features.pictures.layout import Drawing, Pen, lay_out, stack_all
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, RankPicture
from lab.report.style import Style, rank_style

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
        return lay_out(contents, _FORMS, lambda form: _Pen(contents, form, width), width)[1]
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
