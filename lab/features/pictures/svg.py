"""A picture of one step as SVG: ranks as rows, cells in the colours of those whose data they hold, lines from there."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

from lab.features.pictures import model as story
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, Tensor
from lab.features.timeline import svg as draw
from lab.features.values.expected import Part

HEIGHT = 42.0
"""Of a box."""
MONO = "ui-monospace, Menlo, Consolas, monospace"
_LETTER = 8.0
"""Width of a letter of 13 units in that font, with a little room."""
_SMALL_LETTER = 6.3
_TENSOR_GAP = 8.0
_LINE_GAP = 8.0
_BAND = 4.0


class _Placed(NamedTuple):
    """A box with its place, from the upper left corner of the rank's side."""

    box: Box | None
    """None: an ellipsis."""
    notes: list[tuple[str, str]]
    """Text and colour of lines below; of a tensor, at its first box."""
    x: float
    y: float
    width: float
    columns: list[float]
    """Widths of its cells."""

    @property
    def right(self) -> float:
        """The right edge of the box and of what is written below it."""
        return self.x + max([self.width, *(len(note) * _SMALL_LETTER for note, _ in self.notes)])


class Cells:
    """One side of a picture.

    Args:
        contents: what there is to be shown.
        form: how much of it is.
        after: which side.
        room: a rank's tensors go on in the next line where they would be wider.
    """

    def __init__(self, contents: Contents, form: Form, *, after: bool, room: float) -> None:
        self._picture = picture = contents.picture
        self._room = room
        self.head, self.kind = "after" if after else "before", story.kind_text(picture, after=after)
        self._columns: dict[tuple[int, int, int], float] = defaultdict(float)
        """Widths, by the places of tensor, box and cell."""
        self.complete = True
        """Whether every element that is on record has a cell."""
        rows = {rank.rank: _boxes(contents.tensors(rank, form, after=after)) for rank in contents.ranks}
        for place, number, box, _ in chain.from_iterable(rows.values()):
            self.complete = self.complete and box is not None and box.complete
            for column, cell in enumerate(box.cells if box else ()):
                where = place, number, column
                self._columns[where] = max(self._columns[where], max(3, len(cell.text)) * _LETTER + 8)
        self._placed = {rank: self._place(row) for rank, row in rows.items()}
        self._absent = {rank.rank: story.absence(picture, rank, after=after) for rank in contents.ranks}
        edges = [placed.right for row in self._placed.values() for placed in row]
        words = (len(words) * 7.0 for words in self._absent.values())
        self.width = max([40.0, len(self.kind) * 6.7, *words, *edges])

    def height(self, rank: int) -> float:
        """Height of a rank's side."""
        return max([HEIGHT, *(placed.y + HEIGHT + 15 * len(placed.notes) for placed in self._placed[rank])])

    def line_of(self, rank: int, holds: Callable[[Part], bool]) -> float:
        """How far below the top of a rank's side the first box stands with such a part."""
        return next((p.y for p in self._placed[rank] if p.box is not None and holds(p.box.part)), 0.0)

    def draw_rank(self, shapes: draw.Shapes, rank: int, x: float, y: float) -> float:
        """Draw a rank's side at a place; returns its right edge."""
        row = self._placed[rank]
        if not row:
            words = self._absent[rank]
            draw.text(shapes, x, y + 26, words, size=12.5, colour=draw.SOFT if words in ("nothing", "–") else draw.WARN)
            return x + len(words) * 7.0
        for placed in row:
            self._draw_box(shapes, placed, x + placed.x, y + placed.y)
        return x + max(placed.right for placed in row)

    def _place(self, row: Iterable[tuple[int, int, Box | None, list[tuple[str, str]]]]) -> list[_Placed]:
        placed: list[_Placed] = []
        x = y = below = 0.0
        for place, number, box, notes in row:
            width, columns = 24.0, list[float]()
            if box is not None:
                columns = [self._columns[place, number, column] for column in range(len(box.cells))]
                width = max(sum(columns), len(box.label) * _SMALL_LETTER + 10)
                columns = [column * width / sum(columns) for column in columns]
            if placed and number == 0:
                x += _TENSOR_GAP
            if placed and x + width > self._room:
                x, y, below = 0.0, y + HEIGHT + _LINE_GAP + below, 0.0
            below = max(below, 15.0 * len(notes))
            placed.append(_Placed(box, notes, x, y, width, columns))
            x = placed[-1].right
        return placed

    def _draw_box(self, shapes: draw.Shapes, placed: _Placed, x: float, y: float) -> None:
        box, width = placed.box, placed.width
        if box is None:
            draw.text(shapes, x + width / 2, y + 26, ELLIPSIS, text_anchor="middle")
            return
        shapes.add("<g>" + draw.title(box.told))
        self._paint(shapes, box.part, x, y, width)
        draw.text(shapes, x + 5, y + 15, box.label, size=10.5, font_family=MONO)
        left = x
        for index, (cell, share) in enumerate(zip(box.cells, placed.columns, strict=True)):
            if cell.wrong:
                draw.rectangle(
                    shapes, left + 2, y + 19, share - 4, HEIGHT - 22, "none", stroke=draw.BAD, stroke_width=2
                )
            colour, weight = (draw.BAD, "bold") if cell.wrong else ("", "")
            at = left + share / 2, y + 34
            draw.text(shapes, *at, cell.text, colour=colour, font_family=MONO, font_weight=weight, text_anchor="middle")
            if index:
                edge = f"M{left:g} {y + 19:g}v{HEIGHT - 21:g}"
                shapes.add(draw.element("path", d=edge, stroke="currentColor", stroke_opacity=".18"))
            left += share
        shapes.add("</g>")
        for index, (note, colour) in enumerate(placed.notes):
            draw.text(shapes, x, y + HEIGHT + 13 + 15 * index, note, size=10.5, colour=colour, font_family=MONO)

    def _paint(self, shapes: draw.Shapes, part: Part, x: float, y: float, width: float) -> None:
        """Background in the colour of the origin; of a reduction, a band with the colours of all of them."""
        colours = [draw.rank_colour(rank, self._picture.world_size) for rank in part.origins]
        if not colours:
            draw.rectangle(shapes, x, y, width, HEIGHT, "none", stroke=draw.SOFT, stroke_dasharray="4 3")
            return
        if not part.reduced:
            draw.rectangle(shapes, x, y, width, HEIGHT, colours[0], fill_opacity=0.22, stroke=colours[0])
            draw.rectangle(shapes, x, y, width, _BAND, colours[0])
            return
        draw.rectangle(shapes, x, y, width, HEIGHT, "currentColor", fill_opacity=0.05, stroke=draw.SOFT)
        share = width / len(colours)
        for index, colour in enumerate(colours):
            draw.rectangle(shapes, x + index * share, y, share, _BAND, colour)


def _boxes(tensors: Iterable[Tensor | None]) -> list[tuple[int, int, Box | None, list[tuple[str, str]]]]:
    """The boxes of a row, each with the number of its tensor, its own in it, and text and colour of lines below."""
    colours = {"bad": draw.BAD, "good": draw.GOOD}
    row = []
    for place, tensor in enumerate(tensors):
        notes = [
            (line, colours.get(kind, draw.SOFT))
            for kind, words in (tensor.notes if tensor else ())
            for line in (words.split(", ") if kind == "summary" else [words])
        ]
        for number, box in enumerate(tensor.boxes if tensor else (None,)):
            row.append((place, number, box, [] if number else notes))
    return row


_WIDEST = 520.0
"""Wider ones would be too small to read on a phone."""
_NAME_WIDTH = 92.0
_FLOW_WIDTH = 80.0
_ROW_GAP = 14.0
_MOST_RANKS = 8
_MOST_LINES = 80
_STANDALONE = (
    "<style>svg{color:#1b1d21;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e8e9eb;background:#131518;--good:#57c17f;"
    "--bad:#ff7b76;--warn:#e0ac55;--soft:#9ba1aa}}</style>"
)


_NARROW = 174.0
"""Room of a side beside another, where tensors go on in the next line."""
_BESIDE = (
    Form(8, 12), Form(6, 12), Form(4, 8), Form(4, 5), *(Form(values, 5, wrapped=True) for values in (8, 6, 4, 3, 2)),
)  # fmt: skip
_FORMS = (
    Form(24, 12, whole=True), Form(24, 12, wrapped=True, whole=True), *(form._replace(tells=True) for form in _BESIDE),
    Form(24, 12, stacked=True, whole=True), Form(8, 12, stacked=True, tells=True), *_BESIDE,
    Form(8, 12, stacked=True), Form(4, 8, stacked=True), Form(2, 6, stacked=True),
)  # fmt: skip
"""The first that fits is taken, else the last: nothing that matters is left out where there is room for it."""


def svg_of(picture: Picture, *, heading: bool = True, standalone: bool = False) -> str:
    """A picture as an `<svg>` element.

    Args:
        picture: what to draw.
        heading: whether it says itself what was called where; a page that does so around it needs no second one.
        standalone: whether it is a file of its own, with a background, and not a part of a page.
    """
    shapes = draw.Shapes()
    y = _heading(picture, shapes) if heading else 0.0
    y = _paragraph(shapes, y, story.sentence(picture), 72, 19) + 12
    if any(rank.before or rank.after for rank in picture.ranks):
        y = _Sheet(picture, shapes).draw_below(y)
    else:
        y = _waits(picture, shapes, y)
    y = _below(picture, shapes, y)
    width, height = round(max(shapes.right, 280.0) + 12), round(y + 8)
    title = f"Step {picture.step.number}: {picture.step.title}"
    described = " ".join([story.sentence(picture), story.verdict(picture)[1], *story.remarks(picture)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto" fill="currentColor" '
        f'font-family="system-ui, sans-serif" font-size="13">'
        f"<title>{draw.escaped(title)}</title><desc>{draw.escaped(described.strip())}</desc>"
        f"{_STANDALONE if standalone else ''}{''.join(shapes.parts)}</svg>"
    )


def _heading(picture: Picture, shapes: draw.Shapes) -> float:
    y = 24.0
    draw.text(shapes, 12, y, picture.step.title, size=16, font_weight="bold")
    for words in story.heading(picture):
        y = _paragraph(shapes, y, words, 80, 16, size=11.5, colour=draw.SOFT)
    return y


def _paragraph(shapes: draw.Shapes, y: float, words: str, letters: int, height: float, **look: Any) -> float:
    """Words in lines of so many letters, below `y`; returns where they end."""
    for one in textwrap.wrap(words, letters):
        y += height
        draw.text(shapes, 12, y, one, **look)
    return y


def _below(picture: Picture, shapes: draw.Shapes, y: float) -> float:
    kind, verdict = story.verdict(picture)
    y += 10
    sign, colour = {"good": ("✔", draw.GOOD), "bad": ("✘", draw.BAD)}.get(kind, ("?", draw.WARN))
    letters, weight = (64, "bold") if kind == "bad" else (72, "")
    if verdict:
        y = _paragraph(shapes, y, f"{sign} {verdict}", letters, 18, colour=colour, font_weight=weight)
    for remark in story.remarks(picture):
        y = _paragraph(shapes, y + 4, remark, 78, 16, size=12)
    return y + 6


def _waits(picture: Picture, shapes: draw.Shapes, y: float) -> float:
    """A bar for each rank, as long as it waited."""
    y += 8
    for rank, told, share in story.waits(picture):
        colour = draw.rank_colour(rank, picture.world_size)
        draw.text(shapes, 12, y + 14, f"rank {rank}", font_weight="bold")
        length = max(3.0, share * 220)
        draw.rectangle(shapes, _NAME_WIDTH, y, length, 20, colour, fill_opacity=0.35, stroke=colour)
        draw.text(shapes, _NAME_WIDTH + length + 8, y + 14, told, size=12)
        y += 28
    return y


class _Sheet:
    """The rows of ranks: side by side with lines between before and after, or one above the other."""

    def __init__(self, picture: Picture, shapes: draw.Shapes) -> None:
        self._picture = picture
        self._shapes = shapes
        self._contents = Contents(picture, _MOST_RANKS)
        self._places: dict[int, tuple[float, float]] = {}
        """By rank: the top of its row, and the right edge of its first side there."""

    def draw_below(self, y: float) -> float:
        """Draw it all below `y`, in the first form that fits; returns where it ends."""
        form, before, after = next(filter(None, map(self._fit, _FORMS)))
        if form.stacked:
            y = self._draw_rows(y, 12, (_NAME_WIDTH, before))
            return self._draw_rows(y + _ROW_GAP + 6, 12, (_NAME_WIDTH, after))
        right = _NAME_WIDTH + before.width + _FLOW_WIDTH
        y = self._draw_rows(y, 0, (_NAME_WIDTH, before), (right, after))
        self._draw_flows(before, after, right)
        return y

    def _fit(self, form: Form) -> tuple[Form, Cells, Cells] | None:
        """Both sides in one form; None where they do not fit, and there is another form."""
        room = _WIDEST - _NAME_WIDTH if form.stacked else _NARROW if form.wrapped else math.inf
        before, after = (Cells(self._contents, form, after=side, room=room) for side in (False, True))
        beside = before.width + _FLOW_WIDTH + after.width
        width = _NAME_WIDTH + (max(before.width, after.width) if form.stacked else beside)
        lacking = form.whole and not (before.complete and after.complete)
        lacking = lacking or (form.tells and not self._contents.tells(form.values))
        return None if (width > _WIDEST or lacking) and form is not _FORMS[-1] else (form, before, after)

    def _draw_rows(self, y: float, heads_at: float, *sides: tuple[float, Cells]) -> float:
        """The ranks with one side or both, each with its place and, unless it is 0, that of heads; returns the end."""
        for x, cells in sides:
            draw.text(self._shapes, heads_at or x, y + 14, cells.head, font_weight="bold")
            draw.text(self._shapes, heads_at or x, y + 29, cells.kind, size=11, colour=draw.SOFT, font_family=MONO)
        y += 38
        for rank in self._contents.rows:
            if isinstance(rank, str):
                draw.text(self._shapes, 22, y + 10, rank, size=12, colour=draw.SOFT)
                y += 16 + _ROW_GAP
                continue
            draw.rectangle(
                self._shapes, 12, y + 8, 5, HEIGHT - 16, draw.rank_colour(rank.rank, self._picture.world_size)
            )
            below = story.below_name(self._picture, rank)
            draw.text(self._shapes, 22, y + (17 if below else 24), f"rank {rank.rank}", font_weight="bold")
            draw.text(self._shapes, 22, y + 31, below, size=10.5, colour=draw.SOFT)
            edges = [cells.draw_rank(self._shapes, rank.rank, x, y) for x, cells in sides]
            self._places[rank.rank] = y, edges[0]
            y += max(cells.height(rank.rank) for _, cells in sides) + _ROW_GAP
        return y - _ROW_GAP

    def _draw_flows(self, before: Cells, after: Cells, right: float) -> None:
        """A line from each rank's input to each output that it is part of."""
        ends = [
            (
                origin,
                rank.rank,
                self._places[origin][0] + before.line_of(origin, lambda part: part.target == rank.rank),  # noqa: B023
                self._places[rank.rank][0] + after.line_of(rank.rank, lambda part: origin in part.origins),  # noqa: B023
            )
            for rank in self._contents.ranks
            if not story.absence(self._picture, rank, after=True)
            for origin in dict.fromkeys(o for block in rank.after for part in block.parts for o in part.origins)
            if origin in self._places
        ]
        if len(ends) > _MOST_LINES:
            return
        width = 1.0 if len(ends) > 30 else 1.75
        for end in ends:
            origin, target, above, below = end
            starts = [other for other in ends if (other[0], other[2]) == (origin, above)]
            finishes = [other for other in ends if (other[1], other[3]) == (target, below)]
            start, finish = (
                y + HEIGHT / 2 + (same.index(end) - (len(same) - 1) / 2) * min(7.0, 24.0 / len(same))
                for y, same in ((above, starts), (below, finishes))
            )
            colour = draw.rank_colour(origin, self._picture.world_size)
            draw.line(self._shapes, self._places[origin][1] + 4, start, right - 4, finish, colour, width)
