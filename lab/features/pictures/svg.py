"""A picture of one step as SVG: ranks as rows, cells in the colours of those whose data they hold, lines from there."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.features.pictures import model as story
from lab.features.pictures.layout import Drawing, Pen, lay_out
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, RankPicture
from lab.features.timeline import svg as draw
from lab.features.values.expected import Part

_HEIGHT = 42.0
"""Of a box."""
_MONO = "ui-monospace, Menlo, Consolas, monospace"
_LETTER = 8.0
"""Width of a letter of 13 units in that font, with a little room."""
_SMALL_LETTER = 6.3
_WORDS: dict[str, tuple[float, float, float, dict[str, Any]]] = {
    "head": (19, 14, 8, {"font_weight": "bold"}),
    "kind of all": (19, 10, 6.7, {"size": 11, "font_family": _MONO}),
    "left out": (16, 10, 6.5, {"size": 12}),
    "note": (15, 13, _SMALL_LETTER, {"size": 10.5, "font_family": _MONO}),
    "low": (_HEIGHT, 26, 7, {"size": 12.5}),
}
"""How lines look: their height, where they stand in it, the width of a letter, and attributes."""
_BAND = 4.0
_WIDEST = 520.0
"""Wider ones would be too small to read on a phone."""
_NAME_WIDTH = 92.0
_MOST_RANKS = 8
_MOST_LINES = 80
_STANDALONE = (
    "<style>svg{color:#1b1d21;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e8e9eb;background:#131518;--good:#57c17f;"
    "--bad:#ff7b76;--warn:#e0ac55;--soft:#9ba1aa}}</style>"
)
_NARROW = 174.0
"""Room of a side beside another, where tensors go on in the next line."""
_FORMS = (
    Form(24, 12), Form(24, 8, wrapped=True), Form(8, 12), Form(6, 12), Form(4, 8), Form(4, 5),
    Form(24, 12, stacked=True),
    *(Form(values, 5, wrapped=True) for values in (8, 6, 4, 3, 2)),
    Form(8, 12, stacked=True), Form(4, 8, stacked=True), Form(2, 6, stacked=True),
)  # fmt: skip
"""From generous to scant."""


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
        contents = Contents(picture, _MOST_RANKS)
        pen, drawing = lay_out(contents, _FORMS, lambda form: _Pen(contents, form, shapes), _WIDEST)
        for left, top, put in drawing.things:
            put(left, y + top)
        y += drawing.height
        if not pen.form.stacked:
            pen.draw_flows()
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


class _Place(NamedTuple):
    """Where a box stands in the picture."""

    rank: int
    part: Part
    left: float
    top: float


class _Pen(Pen):
    """Draws the rows of ranks in pixels."""

    indent, names_gap, arrow, arrow_width = 12.0, 0.0, "", 80.0
    tensor_gap, box_gap, line_gap, row_gap, side_gap = 8.0, 0.0, 8.0, 14.0, 20.0

    def __init__(self, contents: Contents, form: Form, shapes: draw.Shapes) -> None:
        room = _WIDEST - _NAME_WIDTH if form.stacked else _NARROW if form.wrapped else math.inf
        super().__init__(contents, form, room)
        self._shapes = shapes
        self._ends: dict[int, float] = {}
        """By rank: where what it has before the call ends."""
        self._places: dict[tuple[int, bool], list[_Place]] = {}
        """Of boxes, by rank and side."""

    def cell_width(self, text: str) -> float:
        return max(3, len(text)) * _LETTER + 8

    def draw_name(self, rank: RankPicture) -> Drawing:
        below = story.below_name(self.picture, rank)

        def put(x: float, y: float) -> None:
            colour = draw.rank_colour(rank.rank, self.picture.world_size)
            draw.rectangle(self._shapes, x + 12, y + 8, 5, _HEIGHT - 16, colour)
            draw.text(self._shapes, x + 22, y + (17 if below else 24), f"rank {rank.rank}", font_weight="bold")
            draw.text(self._shapes, x + 22, y + 31, below, size=10.5, colour=draw.SOFT)

        return Drawing(_NAME_WIDTH, _HEIGHT, ((0, 0, put),))

    def draw_head(self, *, after: bool) -> Drawing:
        kind = self.draw_words(story.kind_text(self.picture, after=after), "kind of all")
        return self.draw_words("after" if after else "before", "head").above(kind).widened(40)

    def draw_words(self, words: str, look: str, *, low: bool = False) -> Drawing:
        height, base, letter, more = _WORDS["low" if low else look if look in _WORDS else "note"]
        colour = {"head": "", "warn": draw.WARN, "bad": draw.BAD, "good": draw.GOOD}.get(look, draw.SOFT)

        def put(x: float, y: float) -> None:
            draw.text(self._shapes, x, y + base, words, colour=colour, **more)

        return Drawing(len(words) * letter, height, ((0, 0, put),))

    def draw_box(self, box: Box | None, columns: Sequence[float], owner: tuple[int, bool]) -> Drawing:
        if box is None:
            return Drawing(8).beside(self.draw_words(ELLIPSIS, "soft", low=True).widened(16))
        width = max(sum(columns), len(box.label) * _SMALL_LETTER + 10)

        def put(x: float, y: float) -> None:
            self._places.setdefault(owner, []).append(_Place(owner[0], box.part, x, y))
            self._put_box(box, [column * width / sum(columns) for column in columns], width, x, y)

        return Drawing(width, _HEIGHT, ((0, 0, put),))

    def _put_box(self, box: Box, columns: Sequence[float], width: float, x: float, y: float) -> None:
        shapes = self._shapes
        shapes.add("<g>" + draw.title(box.told))
        self._paint(box.part, x, y, width)
        draw.text(shapes, x + 5, y + 15, box.label, size=10.5, font_family=_MONO)
        left = x
        for index, (cell, share) in enumerate(zip(box.cells, columns, strict=False)):
            if cell.wrong:
                draw.rectangle(
                    shapes, left + 2, y + 19, share - 4, _HEIGHT - 22, "none", stroke=draw.BAD, stroke_width=2
                )
            colour, weight = (draw.BAD, "bold") if cell.wrong else ("", "")
            at = left + share / 2, y + 34
            draw.text(
                shapes, *at, cell.text, colour=colour, font_family=_MONO, font_weight=weight, text_anchor="middle"
            )
            if index:
                edge = f"M{left:g} {y + 19:g}v{_HEIGHT - 21:g}"
                shapes.add(draw.element("path", d=edge, stroke="currentColor", stroke_opacity=".18"))
            left += share
        shapes.add("</g>")

    def _paint(self, part: Part, x: float, y: float, width: float) -> None:
        """Background in the colour of the origin; of a reduction, a band with the colours of all of them."""
        colours = [draw.rank_colour(rank, self.picture.world_size) for rank in part.origins]
        if not colours:
            draw.rectangle(self._shapes, x, y, width, _HEIGHT, "none", stroke=draw.SOFT, stroke_dasharray="4 3")
            return
        fill, opacity, edge = ("currentColor", 0.05, draw.SOFT) if part.reduced else (colours[0], 0.22, colours[0])
        draw.rectangle(self._shapes, x, y, width, _HEIGHT, fill, fill_opacity=opacity, stroke=edge)
        share = width / len(colours)
        for index, colour in enumerate(colours):
            draw.rectangle(self._shapes, x + index * share, y, share, _BAND, colour)

    def draw_side(self, rank: RankPicture, *, after: bool) -> Drawing:
        """As all pens do; where it ends is where lines begin."""
        drawing = super().draw_side(rank, after=after)
        if not after:
            self._ends[rank.rank] = _NAME_WIDTH + drawing.width
        return drawing

    def draw_flows(self) -> None:
        """A line from each rank's input to each output that it is part of."""
        lines: list[tuple[int, _Place, _Place]] = []
        for places in (places for (_, after), places in self._places.items() if after):
            for origin in dict.fromkeys(one for place in places for one in place.part.origins):
                if given := self._places.get((origin, False)):
                    start = next((place for place in given if place.part.target == places[0].rank), given[0])
                    end = next(place for place in places if origin in place.part.origins)
                    lines.append((origin, start, end._replace(left=places[0].left)))
        if len(lines) > _MOST_LINES:
            return
        starts, ends = _spread([start.top for _, start, _ in lines]), _spread([end.top for *_, end in lines])
        for (origin, _, end), above, below in zip(lines, starts, ends, strict=True):
            colour, width = draw.rank_colour(origin, self.picture.world_size), 1.0 if len(lines) > 30 else 1.75
            draw.line(self._shapes, self._ends[origin] + 4, above, end.left - 4, below, colour, width)


def _spread(tops: Sequence[float]) -> list[float]:
    """Where lines end that lead to boxes with these tops, so that those at one box do not lie on each other."""
    count, seen, heights = Counter(tops), Counter[float](), []
    for top in tops:
        heights.append(top + _HEIGHT / 2 + (seen[top] - (count[top] - 1) / 2) * min(7.0, 24.0 / count[top]))
        seen[top] += 1
    return heights
