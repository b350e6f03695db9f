"""Where everything stands in a picture of one step, on a terminal as in SVG: ranks as rows, tensors as boxes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, RankPicture, Tensor, absence


class Drawing(NamedTuple):
    """Things with their places, in columns and lines of a terminal or in pixels."""

    width: float = 0
    height: float = 0
    things: tuple[tuple[float, float, Any], ...] = ()

    def beside(self, other: Drawing, gap: float = 0) -> Drawing:
        """Both side by side."""
        x, height = self.width + gap, max(self.height, other.height)
        return Drawing(x + other.width, height, self.things + other.moved(x, 0))

    def above(self, other: Drawing, gap: float = 0) -> Drawing:
        """Both, one under the other."""
        y, width = self.height + gap, max(self.width, other.width)
        return Drawing(width, y + other.height, self.things + other.moved(0, y))

    def widened(self, width: float) -> Drawing:
        """The same with room to its right."""
        return self._replace(width=max(width, self.width))

    def moved(self, x: float, y: float) -> tuple[tuple[float, float, Any], ...]:
        """Its things elsewhere."""
        return tuple((left + x, top + y, thing) for left, top, thing in self.things)


def stack(drawings: Iterable[Drawing], gap: float = 0) -> Drawing:
    """Drawings, one under the other."""
    return reduce(partial(Drawing.above, gap=gap), drawings)


class Pen(ABC):
    """Draws what there is to be shown in one form.

    Args:
        contents: what there is.
        form: how much of it is shown.
        room: a rank's tensors go on in the next line where they would be wider.
    """

    indent: float
    names_gap: float
    arrow: str
    """What stands between the sides of a rank, and how wide their distance is."""
    arrow_width: float
    tensor_gap: float
    box_gap: float
    line_gap: float
    row_gap: float
    side_gap: float
    """Between all ranks before the call and all ranks after it."""

    def __init__(self, contents: Contents, form: Form, room: float) -> None:
        self.picture, self.contents, self.form, self.room = contents.picture, contents, form, room
        self.names = max(self.draw_name(rank).width for rank in contents.ranks)
        self._tensors = {
            (rank.rank, after): contents.tensors(rank, form, after=after)
            for rank in contents.ranks
            for after in (False, True)
        }
        self._columns: dict[tuple[bool, int, int], list[float]] = {}
        """Widths of cells, the same for all ranks, by side and the places of tensor and box."""
        for (_, after), tensors in self._tensors.items():
            for place, tensor in enumerate(tensors):
                for number, box in enumerate(tensor.boxes if tensor else (None,)):
                    known, own = self._columns.get((after, place, number), []), box.cells if box else ()
                    widths = zip_longest(known, (self.cell_width(cell.text) for cell in own), fillvalue=0.0)
                    self._columns[after, place, number] = [max(pair) for pair in widths]

    @abstractmethod
    def cell_width(self, text: str) -> float:
        """How much room a value takes."""

    @abstractmethod
    def draw_name(self, rank: RankPicture) -> Drawing:
        """The name of a rank with what stands below it."""

    @abstractmethod
    def draw_head(self, *, after: bool) -> Drawing:
        """What stands above a side."""

    @abstractmethod
    def draw_words(self, words: str, look: str, *, low: bool = False) -> Drawing:
        """A line by itself, or as `low` as what stands in boxes."""

    @abstractmethod
    def draw_box(self, box: Box | None, columns: Sequence[float], owner: tuple[int, bool]) -> Drawing:
        """A part of a tensor, of this rank and side; None: an ellipsis."""

    def draw(self) -> Drawing:
        """A row for each rank with both sides, or all ranks before the call and then all ranks after it."""
        before = {rank.rank: self.draw_side(rank, after=False) for rank in self.contents.ranks}
        after = {rank.rank: self.draw_side(rank, after=True) for rank in self.contents.ranks}
        heads = self.draw_head(after=False), self.draw_head(after=True)
        if self.form.stacked:
            shown = [one for one in (False, True) if any(self._tensors[rank, one] for rank in before)]
            sides = (Drawing(self.indent).beside(heads[one]).above(self._rows((before, after)[one])) for one in shown)
            return stack(sides, self.side_gap)
        left = max(one.width for one in (heads[0], *before.values()))
        for rank in self.contents.ranks:
            arrow = self.draw_words(self.arrow if rank.after else "", "soft", low=True).widened(self.arrow_width)
            before[rank.rank] = before[rank.rank].widened(left).beside(arrow).beside(after[rank.rank])
        top = Drawing(self.names + self.names_gap).beside(heads[0].widened(left + self.arrow_width)).beside(heads[1])
        return top.above(self._rows(before))

    def _rows(self, drawn: Mapping[int, Drawing]) -> Drawing:
        """The names of the ranks with what is drawn of them, and words in place of those that are not shown."""
        rows = (
            Drawing(self.indent).beside(self.draw_words(rank, "left out"))
            if isinstance(rank, str)
            else self.draw_name(rank).widened(self.names).beside(drawn[rank.rank], self.names_gap)
            for rank in self.contents.rows
        )
        return stack(rows, self.row_gap)

    def draw_side(self, rank: RankPicture, *, after: bool) -> Drawing:
        """The tensors of a rank on one side."""
        tensors = self._tensors[rank.rank, after]
        if not tensors:
            words = absence(self.picture, rank, after=after)
            return self.draw_words(words, "soft" if words in ("nothing", "–") else "warn", low=True)
        drawn = [self._draw_tensor(tensor, place, (rank.rank, after)) for place, tensor in enumerate(tensors)]
        return self._wrapped(drawn, self.tensor_gap)

    def _draw_tensor(self, tensor: Tensor | None, place: int, owner: tuple[int, bool]) -> Drawing:
        """Its parts as boxes, and what is to be said of it below."""
        if tensor is None:
            return self.draw_words(ELLIPSIS, "soft", low=True)
        numbered = enumerate(tensor.boxes)
        boxes = [self.draw_box(box, self._columns[owner[1], place, number], owner) for number, box in numbered]
        notes = (
            (kind, line) for kind, text in tensor.notes for line in (text.split(", ") if kind == "summary" else [text])
        )
        return stack([self._wrapped(boxes, self.box_gap), *(self.draw_words(line, kind) for kind, line in notes)])

    def _wrapped(self, drawings: Sequence[Drawing], gap: float) -> Drawing:
        """Drawings beside each other, going on in the next line where they do not fit."""
        lines: list[Drawing] = []
        for one in drawings:
            if lines and lines[-1].width + gap + one.width <= self.room:
                lines[-1] = lines[-1].beside(one, gap)
            else:
                lines.append(one)
        return stack(lines, self.line_gap)


P = TypeVar("P", bound=Pen)


def lay_out(contents: Contents, forms: Sequence[Form], pen_of: Callable[[Form], P], width: float) -> tuple[P, Drawing]:
    """The picture in the first form that fits, and what has drawn it; if none does, in the last.

    First are those that leave out no value that is not finite, or not quite zero.
    """
    for form in (*(form for form in forms[:-1] if contents.tells(form.values)), *forms):
        pen = pen_of(form)
        drawing = pen.draw()
        if drawing.width <= width or form is forms[-1]:
            return pen, drawing
    raise ValueError("there is no form")
