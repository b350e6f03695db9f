"""A picture of one step as SVG: ranks as rows, cells in the colors of the ranks whose data they hold."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.features.pictures import model
from lab.features.pictures.layout import Drawing, Pen, lay_out
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, RankPicture
from lab.features.timeline import svg
from lab.features.values.expected import Part

_HEIGHT = 42.0
"""Height of a box."""
_MONO = "ui-monospace, Menlo, Consolas, monospace"
_LETTER = 8.0
"""Width of a letter of size 13 in that font, with some space."""
_SMALL_LETTER = 6.3
_WORDS: dict[str, tuple[float, float, float, dict[str, Any]]] = {
    "head": (19, 14, 8, {"font_weight": "bold"}),
    "kind of all": (19, 10, 6.7, {"size": 11, "font_family": _MONO}),
    "left out": (16, 10, 6.5, {"size": 12, "class": "left-out"}),
    "note": (15, 13, _SMALL_LETTER, {"size": 10.5, "font_family": _MONO}),
    "low": (_HEIGHT, 26, 7, {"size": 12.5}),
}
"""Line styles: height, base line, width of a letter, and attributes."""
_BAND = 4.0
_MAX_WIDTH = 520.0
"""A wider picture would be too small to read on a phone."""
_NAME_WIDTH = 92.0
_MOST_RANKS = 8
_MOST_LINES = 80
_STANDALONE = (
    "<style>svg{color:#1b1d21;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e8e9eb;background:#131518;--good:#57c17f;"
    "--bad:#ff7b76;--warn:#e0ac55;--soft:#9ba1aa}}</style>"
)
_WRAPPED_WIDTH = 174.0
"""Width of a side next to the other one, where tensors continue in the next line."""
_FORMS = (
    Form(24, 12), Form(24, 8, wrapped=True), Form(8, 12), Form(6, 12), Form(4, 8), Form(4, 5),
    Form(24, 12, stacked=True),
    *(Form(values, 5, wrapped=True) for values in (8, 6, 4, 3, 2)),
    Form(8, 12, stacked=True), Form(4, 8, stacked=True), Form(2, 6, stacked=True),
)  # fmt: skip
"""From generous to compact."""


def svg_of(picture: Picture, *, heading: bool = True, standalone: bool = False) -> str:
    """Render a picture as an `<svg>` element.

    Args:
        picture: The picture to render.
        heading: Whether to draw a heading; a page with its own heading needs none.
        standalone: Whether it is a separate file, with a background, rather than a part of a page.
    """
    shapes = svg.Shapes()
    y = _draw_heading(picture, shapes) if heading else 0.0
    y = _draw_paragraph(shapes, y, model.describe_operation(picture), 72, 19) + 12
    if any(rank.before or rank.after for rank in picture.ranks):
        contents = Contents(picture, _MOST_RANKS)
        pen, drawing = lay_out(_FORMS, lambda form: _Pen(contents, form, shapes), _MAX_WIDTH)
        for left, top, draw_item in drawing.items:
            draw_item(left, y + top)
        y += drawing.height
        if not pen.form.stacked:
            pen.draw_flows()
    else:
        y = _draw_waits(picture, shapes, y)
    y = _draw_remarks(picture, shapes, y)
    width, height = round(max(shapes.right, 280.0) + 12), round(y + 8)
    title = f"Step {picture.step.number}: {picture.step.title}"
    text = " ".join([model.describe_operation(picture), model.judge_outputs(picture)[1], *model.list_remarks(picture)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto" fill="currentColor" '
        f'font-family="system-ui, sans-serif" font-size="13">'
        f"<title>{svg.escape_text(title)}</title><desc>{svg.escape_text(text.strip())}</desc>"
        f"{_STANDALONE if standalone else ''}{''.join(shapes.parts)}</svg>"
    )


def _draw_heading(picture: Picture, shapes: svg.Shapes) -> float:
    y = 24.0
    svg.draw_text(shapes, 12, y, picture.step.title, size=16, font_weight="bold")
    for words in model.render_heading(picture):
        y = _draw_paragraph(shapes, y, words, 80, 16, size=11.5, colour=svg.SOFT)
    return y


def _draw_paragraph(shapes: svg.Shapes, y: float, words: str, letters: int, height: float, **attributes: Any) -> float:
    """Draw text in lines of at most `letters` below `y`; return the bottom."""
    for one in textwrap.wrap(words, letters):
        y += height
        svg.draw_text(shapes, 12, y, one, **{"class": "caption", **attributes})
    return y


def _draw_remarks(picture: Picture, shapes: svg.Shapes, y: float) -> float:
    kind, sentence = model.judge_outputs(picture)
    y += 10
    sign, colour = {"good": ("✔", svg.GOOD), "bad": ("✘", svg.BAD)}.get(kind, ("?", svg.WARN))
    letters, weight = (64, "bold") if kind == "bad" else (72, "")
    if sentence:
        y = _draw_paragraph(shapes, y, f"{sign} {sentence}", letters, 18, colour=colour, font_weight=weight)
    for remark in model.list_remarks(picture):
        y = _draw_paragraph(shapes, y + 4, remark, 78, 16, size=12)
    return y + 6


def _draw_waits(picture: Picture, shapes: svg.Shapes, y: float) -> float:
    """Draw a bar for each rank, as long as it waited."""
    y += 8
    for rank, wait, share in model.list_waits(picture):
        colour = svg.rank_colour(rank, picture.world_size)
        svg.draw_text(shapes, 12, y + 14, f"rank {rank}", font_weight="bold")
        length = max(3.0, share * 220)
        svg.draw_rectangle(shapes, _NAME_WIDTH, y, length, 20, colour, fill_opacity=0.35, stroke=colour)
        svg.draw_text(shapes, _NAME_WIDTH + length + 8, y + 14, wait, size=12)
        y += 28
    return y


class _BoxPosition(NamedTuple):
    """The position of a box in the picture."""

    rank: int
    part: Part
    left: float
    top: float


class _Pen(Pen):
    """Draws the rows of ranks in pixels."""

    indent, names_gap, arrow, arrow_width = 12.0, 0.0, "", 80.0
    tensor_gap, box_gap, line_gap, row_gap, side_gap = 8.0, 0.0, 8.0, 14.0, 20.0

    def __init__(self, contents: Contents, form: Form, shapes: svg.Shapes) -> None:
        max_width = _MAX_WIDTH - _NAME_WIDTH if form.stacked else _WRAPPED_WIDTH if form.wrapped else math.inf
        super().__init__(contents, form, max_width)
        self._shapes = shapes
        self._ends: dict[int, float] = {}
        """The right edge of a rank's tensors before the call, by rank."""
        self._positions: dict[tuple[int, bool], list[_BoxPosition]] = {}
        """Positions of boxes, by rank and side."""

    def cell_width(self, text: str) -> float:
        return max(3, len(text)) * _LETTER + 8

    def draw_name(self, rank: RankPicture) -> Drawing:
        below = model.below_name(self.picture, rank)

        def put(x: float, y: float) -> None:
            colour = svg.rank_colour(rank.rank, self.picture.world_size)
            svg.draw_rectangle(self._shapes, x + 12, y + 8, 5, _HEIGHT - 16, colour)
            svg.draw_text(self._shapes, x + 22, y + (17 if below else 24), f"rank {rank.rank}", font_weight="bold")
            svg.draw_text(self._shapes, x + 22, y + 31, below, size=10.5, colour=svg.SOFT)

        return Drawing(_NAME_WIDTH, _HEIGHT, ((0, 0, put),))

    def draw_head(self, *, after: bool) -> Drawing:
        kind = self.draw_words(model.kind_text(self.picture, after=after), "kind of all")
        return self.draw_words("after" if after else "before", "head").above(kind).pad_to(40)

    def draw_words(self, words: str, style_name: str, *, low: bool = False) -> Drawing:
        height, base, letter, attributes = _WORDS["low" if low else style_name if style_name in _WORDS else "note"]
        colour = {"head": "", "warn": svg.WARN, "bad": svg.BAD, "good": svg.GOOD}.get(style_name, svg.SOFT)

        def put(x: float, y: float) -> None:
            svg.draw_text(self._shapes, x, y + base, words, colour=colour, **attributes)

        return Drawing(len(words) * letter, height, ((0, 0, put),))

    def draw_box(self, box: Box | None, columns: Sequence[float], owner: tuple[int, bool]) -> Drawing:
        if box is None:
            return Drawing(8).left_of(self.draw_words(ELLIPSIS, "soft", low=True).pad_to(16))
        width = max(sum(columns), len(box.label) * _SMALL_LETTER + 10)

        def put(x: float, y: float) -> None:
            self._positions.setdefault(owner, []).append(_BoxPosition(owner[0], box.part, x, y))
            self._put_box(box, [column * width / sum(columns) for column in columns], width, x, y)

        return Drawing(width, _HEIGHT, ((0, 0, put),))

    def _put_box(self, box: Box, columns: Sequence[float], width: float, x: float, y: float) -> None:
        shapes = self._shapes
        origins, target = " ".join(map(str, box.part.origins)), "" if box.part.target is None else box.part.target
        shapes.add(f'<g data-origins="{origins}" data-target="{target}">{svg.render_tooltip(box.tooltip)}')
        self._paint(box.part, x, y, width)
        svg.draw_text(shapes, x + 5, y + 15, box.label, size=10.5, font_family=_MONO)
        left = x
        for index, (cell, share) in enumerate(zip(box.cells, columns, strict=False)):
            if cell.is_mismatch:
                frame = left + 2, y + 19, share - 4, _HEIGHT - 22
                svg.draw_rectangle(shapes, *frame, "none", stroke=svg.BAD, stroke_width=2)
            colour, weight = (svg.BAD, "bold") if cell.is_mismatch else ("", "")
            at = left + share / 2, y + 34
            svg.draw_text(
                shapes, *at, cell.text, colour=colour, font_family=_MONO, font_weight=weight, text_anchor="middle"
            )
            if index:
                edge = f"M{left:g} {y + 19:g}v{_HEIGHT - 21:g}"
                shapes.add(svg.render_element("path", d=edge, stroke="currentColor", stroke_opacity=".18"))
            left += share
        shapes.add("</g>")

    def _paint(self, part: Part, x: float, y: float, width: float) -> None:
        """Fill a box with the color of its origin; a reduction has a band with the colors of all origins."""
        if not (colours := [svg.rank_colour(rank, self.picture.world_size) for rank in part.origins]):
            svg.draw_rectangle(self._shapes, x, y, width, _HEIGHT, "none", stroke=svg.SOFT, stroke_dasharray="4 3")
            return
        fill, opacity, edge = ("currentColor", 0.05, svg.SOFT) if part.reduced else (colours[0], 0.22, colours[0])
        svg.draw_rectangle(self._shapes, x, y, width, _HEIGHT, fill, fill_opacity=opacity, stroke=edge)
        share = width / len(colours)
        for index, colour in enumerate(colours):
            svg.draw_rectangle(self._shapes, x + index * share, y, share, _BAND, colour)

    def draw_side(self, rank: RankPicture, *, after: bool) -> Drawing:
        """Draw the side as a group, from which pages present it, and store its right edge, where lines begin."""
        drawing, colour = super().draw_side(rank, after=after), svg.rank_colour(rank.rank, self.picture.world_size)
        if not after:
            self._ends[rank.rank] = _NAME_WIDTH + drawing.width
        head = f'<g data-rank="{rank.rank}" data-side="{"after" if after else "before"}" data-colour="{colour}">'
        edges = [(0, 0, lambda *_, tag=tag: self._shapes.add(tag)) for tag in (head, "</g>")]
        return drawing._replace(items=(edges[0], *drawing.items, edges[1]))

    def draw_flows(self) -> None:
        """Draw a line from each rank's input to each output that holds a part of it."""
        lines: list[tuple[int, _BoxPosition, _BoxPosition]] = []
        for boxes in (boxes for (_, after), boxes in self._positions.items() if after):
            for origin in dict.fromkeys(one for box in boxes for one in box.part.origins):
                if sources := self._positions.get((origin, False)):
                    start = next((box for box in sources if box.part.target == boxes[0].rank), sources[0])
                    end = next(box for box in boxes if origin in box.part.origins)
                    lines.append((origin, start, end._replace(left=boxes[0].left)))
        if len(lines) > _MOST_LINES:
            return
        starts, ends = _spread_ends([start.top for _, start, _ in lines]), _spread_ends([end.top for *_, end in lines])
        for (origin, _, end), above, below in zip(lines, starts, ends, strict=True):
            colour, width = svg.rank_colour(origin, self.picture.world_size), 1.0 if len(lines) > 30 else 1.75
            svg.draw_line(self._shapes, self._ends[origin] + 4, above, end.left - 4, below, colour, width)


def _spread_ends(tops: Sequence[float]) -> list[float]:
    """Return the heights of the ends of lines to boxes with these tops, so that lines at one box do not overlap."""
    count, used, heights = Counter(tops), Counter[float](), []
    for top in tops:
        heights.append(top + _HEIGHT / 2 + (used[top] - (count[top] - 1) / 2) * min(7.0, 24.0 / count[top]))
        used[top] += 1
    return heights
