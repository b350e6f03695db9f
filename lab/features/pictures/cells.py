"""The tensors of one side of a picture as cells, in the same columns for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.features.pictures import story
from lab.features.pictures.content import Box, Content, Tensor
from lab.features.pictures.model import RankPicture
from lab.features.pictures.words import ELLIPSIS
from lab.features.timeline.colours import rank_colour
from lab.features.timeline.svg import BAD, GOOD, SOFT, WARN, Shapes, element, rectangle, text, title
from lab.trace.expected import Part

HEIGHT = 42.0
"""Of a box."""
MONO = "ui-monospace, Menlo, Consolas, monospace"
_LETTER = 8.0
"""Width of a letter of 13 units in that font, with a little room."""
_SMALL_LETTER = 6.3
_TENSOR_GAP = 8.0
_LINE_GAP = 8.0
_BAND = 4.0


@dataclass(frozen=True, slots=True)
class _Placed:
    """A box with its place, from the upper left corner of the rank's side."""

    box: Box | None
    """None: an ellipsis."""
    notes: tuple[tuple[str, str], ...]
    """Text and colour of lines below; of a tensor, at its first box."""
    x: float
    y: float
    width: float
    columns: tuple[float, ...] = ()
    """Widths of its cells."""

    @property
    def right(self) -> float:
        """The right edge of the box and of what is written below it."""
        return self.x + max([self.width, *(len(note) * _SMALL_LETTER for note, _ in self.notes)])


class Cells:
    """One side of a picture.

    Args:
        content: what is shown.
        ranks: those that are shown.
        after: which side.
        room: a rank's tensors go on in the next line where they would be wider.
    """

    def __init__(self, content: Content, ranks: Sequence[RankPicture], *, after: bool, room: float) -> None:
        self._picture = picture = content.picture
        self.after = after
        self._room = room
        rows = {rank.rank: content.tensors(rank, after=after) for rank in ranks}
        self._columns: dict[tuple[int, int, int], float] = {}
        """Widths, by the places of tensor, box and cell."""
        self.complete = True
        """Whether every element that is on record has a cell."""
        for row in rows.values():
            for place, tensor in enumerate(row):
                self._measure(place, tensor)
        self._placed = {rank: self._place(row) for rank, row in rows.items()}
        self._absent = {rank.rank: story.absence(picture, rank, after=after) for rank in ranks}
        edges = [placed.right for row in self._placed.values() for placed in row]
        kind = len(story.kind_text(picture, after=after)) * 6.7
        self.width = max([40.0, kind, *(len(words) * 7.0 for words in self._absent.values()), *edges])

    def _measure(self, place: int, tensor: Tensor | None) -> None:
        for number, box in enumerate(tensor.boxes if tensor else (None,)):
            self.complete = self.complete and box is not None and box.complete
            for column, cell in enumerate(box.cells if box else ()):
                where = place, number, column
                self._columns[where] = max(self._columns.get(where, 0.0), max(3, len(cell.text)) * _LETTER + 8)

    def height(self, rank: int) -> float:
        """Height of a rank's side."""
        return max([HEIGHT, *(placed.y + HEIGHT + 15 * len(placed.notes) for placed in self._placed[rank])])

    def line_of(self, rank: int, origin: int) -> float:
        """How far below the top of a rank's side the first box with data of that origin stands."""
        return next((p.y for p in self._placed[rank] if p.box is not None and origin in p.box.part.origins), 0.0)

    def line_for(self, rank: int, target: int) -> float:
        """How far below the top of a rank's side the first box stands that goes to that rank."""
        return next((p.y for p in self._placed[rank] if p.box is not None and p.box.part.target == target), 0.0)

    def draw(self, shapes: Shapes, rank: int, x: float, y: float) -> float:
        """Draw a rank's side at a place; returns its right edge."""
        row = self._placed[rank]
        if not row:
            words = self._absent[rank]
            text(shapes, x, y + 26, words, size=12.5, colour=SOFT if words in ("nothing", "–") else WARN)
            return x + len(words) * 7.0
        for placed in row:
            self._draw_box(shapes, placed, x + placed.x, y + placed.y)
        return x + max(placed.right for placed in row)

    def _place(self, tensors: Sequence[Tensor | None]) -> list[_Placed]:
        placed: list[_Placed] = []
        x = y = below = 0.0
        for place, tensor in enumerate(tensors):
            for number, box in enumerate(tensor.boxes if tensor else (None,)):
                width, columns = 24.0, tuple[float, ...]()
                if box is not None:
                    columns = tuple(self._columns[place, number, column] for column in range(len(box.cells)))
                    width = max(sum(columns), len(box.label) * _SMALL_LETTER + 10)
                    columns = tuple(column * width / sum(columns) for column in columns)
                notes = _lines(tensor) if tensor and number == 0 else ()
                if placed and number == 0:
                    x += _TENSOR_GAP
                if placed and x + width > self._room:
                    x, y, below = 0.0, y + HEIGHT + _LINE_GAP + below, 0.0
                below = max(below, 15.0 * len(notes))
                placed.append(_Placed(box, notes, x, y, width, columns))
                x = placed[-1].right
        return placed

    def _draw_box(self, shapes: Shapes, placed: _Placed, x: float, y: float) -> None:
        box, width = placed.box, placed.width
        if box is None:
            text(shapes, x + width / 2, y + 26, ELLIPSIS, text_anchor="middle")
            return
        shapes.add("<g>" + title(box.told))
        self._paint(shapes, box.part, x, y, width)
        text(shapes, x + 5, y + 15, box.label, size=10.5, font_family=MONO)
        left = x
        for index, (cell, share) in enumerate(zip(box.cells, placed.columns, strict=True)):
            if cell.wrong:
                rectangle(shapes, left + 2, y + 19, share - 4, HEIGHT - 22, "none", stroke=BAD, stroke_width=2)
            colour, weight = (BAD, "bold") if cell.wrong else ("", "")
            at = left + share / 2, y + 34
            text(shapes, *at, cell.text, colour=colour, font_family=MONO, font_weight=weight, text_anchor="middle")
            if index:
                edge = f"M{left:g} {y + 19:g}v{HEIGHT - 21:g}"
                shapes.add(element("path", d=edge, stroke="currentColor", stroke_opacity=".18"))
            left += share
        shapes.add("</g>")
        for index, (note, colour) in enumerate(placed.notes):
            text(shapes, x, y + HEIGHT + 13 + 15 * index, note, size=10.5, colour=colour, font_family=MONO)

    def _paint(self, shapes: Shapes, part: Part, x: float, y: float, width: float) -> None:
        """Background in the colour of the origin; of a reduction, a band with the colours of all of them."""
        colours = [rank_colour(rank, self._picture.world_size) for rank in part.origins]
        if not colours:
            rectangle(shapes, x, y, width, HEIGHT, "none", stroke=SOFT, stroke_dasharray="4 3")
            return
        if not part.reduced:
            rectangle(shapes, x, y, width, HEIGHT, colours[0], fill_opacity=0.22, stroke=colours[0])
            rectangle(shapes, x, y, width, _BAND, colours[0])
            return
        rectangle(shapes, x, y, width, HEIGHT, "currentColor", fill_opacity=0.05, stroke=SOFT)
        share = width / len(colours)
        for index, colour in enumerate(colours):
            rectangle(shapes, x + index * share, y, share, _BAND, colour)


def _lines(tensor: Tensor) -> tuple[tuple[str, str], ...]:
    """Text and colour of each line below a tensor."""
    colours = {"bad": BAD, "good": GOOD}
    return tuple(
        (line, colours.get(kind, SOFT))
        for kind, words in tensor.notes
        for line in (words.split(", ") if kind == "summary" else [words])
    )
