"""The tensors of one side of a picture as cells, in the same columns for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.report.palette import rank_colour
from lab.report.picture import story
from lab.report.picture.model import Block, Picture, RankPicture
from lab.report.picture.words import ELLIPSIS, label_text, number_text, shape_text, shown_of, summary_text
from lab.report.svg import BAD, GOOD, SOFT, WARN, Shapes, rectangle, text
from lab.trace.parts import Part

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
class _Cell:
    """One value, or what stands for several."""

    text: str
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class _Box:
    """Part of a tensor."""

    part: Part | None
    """None: an ellipsis in place of parts that are not shown."""
    label: str
    cells: tuple[_Cell, ...]
    first: bool
    """Whether a tensor begins here."""
    notes: tuple[tuple[str, str], ...] = ()
    """Text and colour of lines below; of a tensor, at its first box."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A box with its place, from the upper left corner of the rank's side."""

    box: _Box
    x: float
    y: float
    width: float


class Cells:
    """One side of a picture.

    Args:
        picture: all of it.
        ranks: those that are shown.
        after: which side.
        values: how many of a part are shown.
        boxes: how many parts of a tensor, and tensors of a rank.
        room: a rank's tensors go on in the next line where they would be wider.
    """

    def __init__(
        self, picture: Picture, ranks: Sequence[RankPicture], *, after: bool, values: int, boxes: int, room: float
    ) -> None:
        self._picture = picture
        self._after = after
        self._values = values
        self._most = boxes
        self._room = room
        rows = {rank.rank: self._boxes(rank) for rank in ranks}
        letters = [len(cell.text) + cell.wrong for row in rows.values() for box in row for cell in box.cells]
        self._cell = max([3, *letters]) * _LETTER + 8
        self._placed = {rank: self._place(row) for rank, row in rows.items()}
        edges = [_right(placed) for row in self._placed.values() for placed in row]
        absent = max((len(self._absence(rank)) for rank in ranks if not rows[rank.rank]), default=0)
        kind = len(story.kind_text(picture, after=after)) * 6.7
        self.width = max([40.0, kind, absent * 7.0, *edges])

    def height(self, rank: RankPicture) -> float:
        """Height of a rank's side."""
        row = self._placed[rank.rank]
        return max([HEIGHT, *(placed.y + HEIGHT + 15 * len(placed.box.notes) for placed in row)])

    def line_of(self, rank: RankPicture, origin: int) -> float:
        """How far below the top of a rank's side the first box with data of that origin stands."""
        row = self._placed[rank.rank]
        return next((p.y for p in row if p.box.part is not None and origin in p.box.part.origins), 0.0)

    def line_for(self, rank: RankPicture, target: int) -> float:
        """How far below the top of a rank's side the first box stands that goes to that rank."""
        row = self._placed[rank.rank]
        return next((p.y for p in row if p.box.part is not None and p.box.part.target == target), 0.0)

    def draw(self, shapes: Shapes, rank: RankPicture, x: float, y: float) -> float:
        """Draw a rank's side at a place; returns its right edge."""
        row = self._placed[rank.rank]
        if not row:
            absence = self._absence(rank)
            colour = SOFT if absence in ("nothing", "–") else WARN
            text(shapes, x, y + 26, absence, size=12.5, colour=colour)
            return x + len(absence) * 7.0
        for placed in row:
            self._draw_box(shapes, placed, x + placed.x, y + placed.y)
        return x + max(_right(placed) for placed in row)

    def _absence(self, rank: RankPicture) -> str:
        return story.absence(self._picture, rank, after=self._after) or ("" if self._picture.message else "nothing")

    def _boxes(self, rank: RankPicture) -> list[_Box]:
        blocks = rank.after if self._after else rank.before
        if story.absence(self._picture, rank, after=self._after):
            return []
        wrong = [i for i, block in enumerate(blocks) if block.wrong or block.wrong_hash]
        boxes: list[_Box] = []
        for index in shown_of(len(blocks), self._most, wrong):
            boxes += [_ellipsis(first=True)] if index is None else self._boxes_of(blocks[index])
        return boxes

    def _boxes_of(self, block: Block) -> list[_Box]:
        starts = [sum(part.count for part in block.parts[:i]) for i in range(len(block.parts))]
        ends = [start + part.count for start, part in zip(starts, block.parts, strict=True)]
        wrong = [i for i, end in enumerate(ends) if any(starts[i] <= element < end for element in block.wrong)]
        boxes = []
        for index in shown_of(len(block.parts), self._most, wrong):
            if index is None:
                boxes.append(_ellipsis(first=False))
                continue
            part, start = block.parts[index], starts[index]
            notes = self._notes(block) if not boxes else ()
            label = label_text(part, self._picture.reduce_op)
            boxes.append(_Box(part, label, _cells(block, part, start, self._values), not boxes, notes))
        return boxes

    def _notes(self, block: Block) -> tuple[tuple[str, str], ...]:
        notes = []
        if block.values is None:
            if not story.uniform(self._picture, after=self._after):
                notes.append((shape_text(block.dtype, block.shape), SOFT))
            notes += [(words, SOFT) for words in summary_text(block.summary).split(", ")]
        if block.wrong_hash:
            notes.append(("✘ another tensor", BAD))
        if block.wrong and block.expected is not None:
            shown = shown_of(len(block.expected), self._values, block.wrong)
            texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
            notes.append((f"should be {' '.join(texts)}", GOOD))
        return tuple(note for note in notes if note[0])

    def _place(self, boxes: Sequence[_Box]) -> list[_Placed]:
        placed: list[_Placed] = []
        x = y = below = 0.0
        for box in boxes:
            width = max(len(box.cells) * self._cell, len(box.label) * _SMALL_LETTER + 10)
            if box.part is None:
                width = 24.0
            if placed and box.first:
                x += _TENSOR_GAP
            if placed and x + width > self._room:
                x, y, below = 0.0, y + HEIGHT + _LINE_GAP + below, 0.0
            below = max(below, 15.0 * len(box.notes))
            placed.append(_Placed(box, x, y, width))
            x += max(width, *(len(note) * _SMALL_LETTER for note, _ in box.notes)) if box.notes else width
        return placed

    def _draw_box(self, shapes: Shapes, placed: _Placed, x: float, y: float) -> None:
        box, width, part = placed.box, placed.width, placed.box.part
        if part is None:
            text(shapes, x + width / 2, y + 26, ELLIPSIS, anchor="middle")
            return
        self._paint(shapes, part, x, y, width)
        text(shapes, x + 5, y + 15, box.label, size=10.5, family=MONO)
        share = width / max(1, len(box.cells))
        for index, cell in enumerate(box.cells):
            left = x + index * share
            if cell.wrong:
                rectangle(shapes, left + 2, y + 19, share - 4, HEIGHT - 22, "none", stroke=BAD, stroke_width=2)
            weight, colour = ("bold", BAD) if cell.wrong else ("", "")
            words = f"✘{cell.text}" if cell.wrong else cell.text
            middle = left + share / 2
            text(shapes, middle, y + 34, words, family=MONO, weight=weight, colour=colour, anchor="middle")
            if index:
                shapes.add(
                    f'<path d="M{left:g} {y + 19:g}v{HEIGHT - 21:g}" stroke="currentColor" stroke-opacity=".18"/>'
                )
        for index, (note, colour) in enumerate(box.notes):
            text(shapes, x, y + HEIGHT + 13 + 15 * index, note, size=10.5, colour=colour, family=MONO)

    def _paint(self, shapes: Shapes, part: Part, x: float, y: float, width: float) -> None:
        """Background in the colour of the origin; of a reduction, a band with the colours of all of them."""
        colours = [rank_colour(rank, self._picture.world_size) for rank in part.origins]
        if not colours:
            rectangle(shapes, x, y, width, HEIGHT, "none", stroke=SOFT, dashed=True)
            return
        if not part.reduced:
            rectangle(shapes, x, y, width, HEIGHT, colours[0], opacity=0.22, stroke=colours[0])
            rectangle(shapes, x, y, width, _BAND, colours[0])
            return
        rectangle(shapes, x, y, width, HEIGHT, "currentColor", opacity=0.05, stroke=SOFT)
        share = width / len(colours)
        for index, colour in enumerate(colours):
            rectangle(shapes, x + index * share, y, share, _BAND, colour)


def _right(placed: _Placed) -> float:
    """The right edge of a box and of what is written below it."""
    return placed.x + max([placed.width, *(len(note) * _SMALL_LETTER for note, _ in placed.box.notes)])


def _ellipsis(*, first: bool) -> _Box:
    return _Box(None, "", (), first)


def _cells(block: Block, part: Part, start: int, values: int) -> tuple[_Cell, ...]:
    if not part.count:
        return (_Cell("empty"),)
    if block.pickled:
        return (_Cell(f"pickle, {part.count} B", bool(block.wrong)),)
    if block.values is None:
        return (_Cell(f"{part.count:,} elements" if part.count > 1 else "1 element", block.wrong_hash),)
    wrong = {element - start for element in block.wrong}
    inside = [one for one in wrong if 0 <= one < part.count]
    return tuple(
        _Cell(ELLIPSIS) if i is None else _Cell(number_text(block.values[start + i]), i in wrong)
        for i in shown_of(part.count, values, inside)
    )
