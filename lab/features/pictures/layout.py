"""The layout of a picture of one step, in a terminal and in SVG: ranks as rows, tensors as boxes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, RankPicture, Tensor, describe_absence


class Drawing(NamedTuple):
    """Items with their positions, in columns and lines of a terminal or in pixels."""

    width: float = 0
    height: float = 0
    items: tuple[tuple[float, float, Any], ...] = ()

    def left_of(self, other: Drawing, gap: float = 0) -> Drawing:
        """Put this drawing to the left of another one."""
        x, height = self.width + gap, max(self.height, other.height)
        return Drawing(x + other.width, height, self.items + other.shift_items(x, 0))

    def above(self, other: Drawing, gap: float = 0) -> Drawing:
        """Put this drawing above another one."""
        y, width = self.height + gap, max(self.width, other.width)
        return Drawing(width, y + other.height, self.items + other.shift_items(0, y))

    def pad_to(self, width: float) -> Drawing:
        """Return the drawing, at least as wide as `width`."""
        return self._replace(width=max(width, self.width))

    def shift_items(self, x: float, y: float) -> tuple[tuple[float, float, Any], ...]:
        """Return the items at shifted positions."""
        return tuple((left + x, top + y, item) for left, top, item in self.items)


def stack_all(drawings: Iterable[Drawing], gap: float = 0) -> Drawing:
    """Put drawings below each other."""
    return reduce(partial(Drawing.above, gap=gap), drawings)


class Pen(ABC):
    """Draws the contents of a picture in one form.

    Args:
        contents: What to draw.
        form: How much of it to draw.
        max_width: Maximum width of a rank's tensors; what does not fit continues in the next line.
    """

    indent: float
    names_gap: float
    arrow: str
    """The text between the sides of a rank, and the distance between them."""
    arrow_width: float
    tensor_gap: float
    box_gap: float
    line_gap: float
    row_gap: float
    side_gap: float
    """Distance between all ranks before the call and all ranks after it."""

    def __init__(self, contents: Contents, form: Form, max_width: float) -> None:
        self.picture, self.contents, self.form, self.max_width = contents.picture, contents, form, max_width
        self.names = max(self.draw_name(rank).width for rank in contents.ranks)
        sides = [(rank, after) for rank in contents.ranks for after in (False, True)]
        self._tensors = {(rank.rank, after): contents.tensors(rank, form, after=after) for rank, after in sides}
        self._columns: dict[tuple[bool, int, int], list[float]] = {}
        """Widths of cells, the same for all ranks, by side and by the numbers of tensor and box."""
        for (_, after), tensors in self._tensors.items():
            for index, tensor in enumerate(tensors):
                for box_number, box in enumerate(tensor.boxes if tensor else (None,)):
                    previous, cells = (self._columns.get((after, index, box_number), []), box.cells if box else ())
                    widths = zip_longest(previous, (self.cell_width(cell.text) for cell in cells), fillvalue=0.0)
                    self._columns[after, index, box_number] = [max(pair) for pair in widths]

    @abstractmethod
    def cell_width(self, text: str) -> float:
        """Return the width of a value."""

    @abstractmethod
    def draw_name(self, rank: RankPicture) -> Drawing:
        """Draw the name of a rank, and its role below."""

    @abstractmethod
    def draw_head(self, *, after: bool) -> Drawing:
        """Draw the heading of a side."""

    @abstractmethod
    def draw_words(self, words: str, style_name: str, *, low: bool = False) -> Drawing:
        """Draw a line of text, at the height of the values in boxes if `low`."""

    @abstractmethod
    def draw_box(self, box: Box | None, columns: Sequence[float], owner: tuple[int, bool]) -> Drawing:
        """Draw a part of a tensor for this rank and side; None draws an ellipsis."""

    def draw(self) -> Drawing:
        """Draw a row for each rank with both sides, or all ranks before the call and then all ranks after it."""
        before = {rank.rank: self.draw_side(rank, after=False) for rank in self.contents.ranks}
        after = {rank.rank: self.draw_side(rank, after=True) for rank in self.contents.ranks}
        heads = self.draw_head(after=False), self.draw_head(after=True)
        if self.form.stacked:
            shown = [one for one in (False, True) if any(self._tensors[rank, one] for rank in before)]
            sides = (Drawing(self.indent).left_of(heads[one]).above(self._rows((before, after)[one])) for one in shown)
            return stack_all(sides, self.side_gap)
        left = max(one.width for one in (heads[0], *before.values()))
        for rank in self.contents.ranks:
            arrow = self.draw_words(self.arrow if rank.after else "", "soft", low=True).pad_to(self.arrow_width)
            before[rank.rank] = before[rank.rank].pad_to(left).left_of(arrow).left_of(after[rank.rank])
        top = Drawing(self.names + self.names_gap).left_of(heads[0].pad_to(left + self.arrow_width)).left_of(heads[1])
        return top.above(self._rows(before))

    def _rows(self, drawn: Mapping[int, Drawing]) -> Drawing:
        """Draw the names of the ranks with their drawings, and texts in place of ranks that are not shown."""
        rows = (
            Drawing(self.indent).left_of(self.draw_words(rank, "left out"))
            if isinstance(rank, str)
            else self.draw_name(rank).pad_to(self.names).left_of(drawn[rank.rank], self.names_gap)
            for rank in self.contents.rows
        )
        return stack_all(rows, self.row_gap)

    def draw_side(self, rank: RankPicture, *, after: bool) -> Drawing:
        """Draw the tensors of a rank on one side."""
        if not (tensors := self._tensors[rank.rank, after]):
            words = describe_absence(self.picture, rank, after=after)
            return self.draw_words(words, "soft" if words in ("nothing", "–") else "warn", low=True)
        drawn = [self._draw_tensor(tensor, number, (rank.rank, after)) for number, tensor in enumerate(tensors)]
        return self._wrap(drawn, self.tensor_gap)

    def _draw_tensor(self, tensor: Tensor | None, number: int, owner: tuple[int, bool]) -> Drawing:
        """Draw the parts of a tensor as boxes, with notes below."""
        if tensor is None:
            return self.draw_words(ELLIPSIS, "soft", low=True)
        numbered = enumerate(tensor.boxes)
        boxes = [self.draw_box(box, self._columns[owner[1], number, box_number], owner) for box_number, box in numbered]
        notes = (
            (kind, one) for kind, text in tensor.notes for one in (text.split(", ") if kind == "summary" else [text])
        )
        return stack_all([self._wrap(boxes, self.box_gap), *(self.draw_words(line, kind) for kind, line in notes)])

    def _wrap(self, drawings: Sequence[Drawing], gap: float) -> Drawing:
        """Put drawings side by side; what does not fit continues in the next line."""
        lines: list[Drawing] = []
        for one in drawings:
            if lines and lines[-1].width + gap + one.width <= self.max_width:
                lines[-1] = lines[-1].left_of(one, gap)
            else:
                lines.append(one)
        return stack_all(lines, self.line_gap)


P = TypeVar("P", bound=Pen)


def lay_out(forms: Sequence[Form], pen_of: Callable[[Form], P], width: float) -> tuple[P, Drawing]:
    """Draw the contents in the first form that fits, or else in the last; return the pen and the drawing."""
    for form in forms:
        pen = pen_of(form)
        drawing = pen.draw()
        if drawing.width <= width or form is forms[-1]:
            return pen, drawing
    raise ValueError("there is no layout")
