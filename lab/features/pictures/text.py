"""A picture of one step for a terminal: ranks as rows, boxes in the colours of those whose data they hold."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import zip_longest
from typing import NamedTuple

from lab.features.pictures import model as story
from lab.features.pictures.model import ELLIPSIS, Box, Contents, Form, Picture, RankPicture, Tensor
from lab.features.values.expected import Part
from lab.operations import operation
from lab.report.style import Style


class Drawing(NamedTuple):
    """Lines of one width, painted already, that can be put beside each other."""

    width: int
    """Columns; colours take none."""
    lines: tuple[str, ...] = ()

    def beside(self, other: Drawing, gap: int = 1) -> Drawing:
        """Both side by side."""
        rows = zip_longest(self.lines, other.lines)
        lines = (f"{left or ' ' * self.width}{' ' * gap}{right or ' ' * other.width}" for left, right in rows)
        return Drawing(self.width + gap + other.width, tuple(lines))

    def above(self, other: Drawing) -> Drawing:
        """Both, one under the other."""
        width = max(self.width, other.width)
        return Drawing(width, (*self.widened(width).lines, *other.widened(width).lines))

    def widened(self, width: int) -> Drawing:
        """The same with room to its right."""
        return Drawing(width, tuple(line + " " * (width - self.width) for line in self.lines))


def drawing_of(style: Style, lines: Sequence[tuple[str, tuple[str, ...]]]) -> Drawing:
    """Lines of text, each in its colours."""
    width = max((len(text) for text, _ in lines), default=0)
    return Drawing(width, tuple(style.paint(text, *how) + " " * (width - len(text)) for text, how in lines))


_ARROW = " ──▶ "
_BAR_COLUMNS = 24
_MOST_RANKS = 12
_WIDEST = 120
"""Columns where lines may be as long as they like."""


_PLAIN_FORMS = (
    Form(32, 16), Form(32, 16, stacked=True), Form(12, 16), Form(12, 16, stacked=True), Form(8, 16),
    Form(8, 16, stacked=True), Form(6, 8), Form(4, 8), Form(6, 8, stacked=True), Form(4, 8, stacked=True),
    Form(2, 8, stacked=True), Form(4, 8, stacked=True, wrapped=True), Form(2, 4, stacked=True, wrapped=True),
)  # fmt: skip
_FORMS = (*(form._replace(tells=True) for form in _PLAIN_FORMS), *_PLAIN_FORMS)
"""From generous to scant: the first that fits is taken, of those that leave out nothing odd if any of them does."""


def picture_text(picture: Picture, style: Style, steps: int = 0) -> str:
    """A heading, what the operation does, every rank's tensors before and after, and whether they are right.

    Args:
        picture: what to draw.
        style: how to paint it, and how wide the terminal is.
        steps: how many steps the run had; told in the heading if it is above 0.
    """
    width = style.width or _WIDEST
    number = f"step {picture.step.number}{f' of {steps}' if steps else ''}:"
    lines = [f"{style.paint(number, 'dim')} {style.paint(picture.step.title, 'bold')}"]
    lines += [style.paint(line, "dim") for text in story.heading(picture) for line in textwrap.wrap(text, width)]
    lines += textwrap.wrap(story.sentence(picture), width)
    lines += ["", "\n".join(line.rstrip() for line in _body(picture, style, width)).rstrip(), ""]
    kind, text = story.verdict(picture)
    if text:
        sign, colour = {"good": ("✔", "green"), "bad": ("✘", "red")}.get(kind, ("?", "yellow"))
        lines += [style.paint(line, colour) for line in textwrap.wrap(f"{sign} {text}", width, subsequent_indent="  ")]
    for remark in story.remarks(picture):
        lines += textwrap.wrap(remark, width, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines).rstrip()


def _body(picture: Picture, style: Style, width: int) -> list[str]:
    if not any(rank.before or rank.after for rank in picture.ranks):
        return _waits(picture, style)
    contents, drawing = Contents(picture, _MOST_RANKS), Drawing(0)
    for form in _FORMS:
        if form.tells and not contents.tells(form.values):
            continue
        pen = _Pen(contents, style, form, width)
        drawing = pen.message() if picture.step.message else pen.stacked() if form.stacked else pen.beside()
        if drawing.width <= width:
            break
    return list(drawing.lines)


def _waits(picture: Picture, style: Style) -> list[str]:
    """Who waited how long: all there is to see of a barrier."""
    names = {rank: f"rank {rank}" for rank, _, _ in story.waits(picture)}
    longest = max(map(len, names.values()))
    return [
        f"  {style.rank(rank, names[rank].ljust(longest))}  "
        f"{style.rank(rank, '█' * max(1, round(share * _BAR_COLUMNS)) if share else '▏')} {text}"
        for rank, text, share in story.waits(picture)
    ]


class _Pen:
    """Draws one picture within limits."""

    def __init__(self, contents: Contents, style: Style, form: Form, width: int) -> None:
        self._picture, self._contents = contents.picture, contents
        self._style = style
        self._form = form
        self._names = max(self._name(rank).width for rank in contents.ranks)
        self._room = width - self._names - 2
        """Columns for the tensors of a rank where nothing stands beside them."""

    def beside(self) -> Drawing:
        """A row for each rank: its name, its tensors before, an arrow, its tensors after."""
        heads = self._head(after=False), self._head(after=True)
        before = {rank.rank: self._side(rank, after=False) for rank in self._contents.ranks}
        left = max(one.width for one in (heads[0], *before.values()))

        def row(rank: RankPicture) -> Drawing:
            arrow = self._low(_ARROW if rank.after else " " * len(_ARROW), "dim")
            return before[rank.rank].widened(left).beside(arrow, 0).beside(self._side(rank, after=True), 0)

        top = Drawing(self._names).beside(heads[0].widened(left + len(_ARROW)), 2).beside(heads[1], 0)
        return top.above(self._each_rank(row))

    def stacked(self) -> Drawing:
        """All ranks before the call, then all ranks after it."""
        sides = [
            Drawing(2).beside(self._head(after=after), 0).above(self._each_rank(partial(self._side, after=after)))
            for after in (False, True)
            if any(rank.tensors(after=after) for rank in self._picture.ranks)
        ]
        return reduce(lambda upper, lower: upper.above(Drawing(0, ("",))).above(lower), sides)

    def message(self) -> Drawing:
        """The sender's tensors, an arrow, the receiver's."""
        sender, receiver = self._picture.ranks[0], self._picture.ranks[-1]
        given = self._name(sender).beside(self._side(sender, after=False), 2)
        if sender is receiver and operation(sender.op).receives:  # from any rank, and none has sent
            given = self._low("  any rank", "dim")
        name, taken = self._name(receiver), self._side(receiver, after=True)
        if self._form.stacked:
            return given.above(name.beside(taken, 2))
        return given.beside(self._low(_ARROW, "dim"), 0).beside(taken.beside(name, 2), 0)

    def _each_rank(self, draw: Callable[[RankPicture], Drawing]) -> Drawing:
        """The names of the ranks with what is drawn of them, and words in place of those that are not shown."""
        rows = [
            Drawing(0, (f"  {rank}",))
            if isinstance(rank, str)
            else self._name(rank).widened(self._names).beside(draw(rank), 2)
            for rank in self._contents.rows
        ]
        return reduce(Drawing.above, rows)

    def _name(self, rank: RankPicture) -> Drawing:
        name, below = f"  rank {rank.rank}", f"  {story.below_name(self._picture, rank)}"
        width = max(len(name), len(below))
        padded = self._style.rank(rank.rank, name) + " " * (width - len(name))
        return Drawing(width, (" " * width, padded, self._style.paint(below, "dim") + " " * (width - len(below))))

    def _head(self, *, after: bool) -> Drawing:
        kind = story.kind_text(self._picture, after=after)
        return drawing_of(self._style, [(f"{'after' if after else 'before'}{': ' if kind else ''}{kind}", ("bold",))])

    def _side(self, rank: RankPicture, *, after: bool) -> Drawing:
        """The tensors of a rank on one side."""
        tensors = self._contents.tensors(rank, self._form, after=after)
        if not tensors:
            words = story.absence(self._picture, rank, after=after) or "nothing"
            return self._low(words, "dim" if words in ("nothing", "–") else "yellow")
        return self._lines([self._low(ELLIPSIS) if one is None else self._tensor(one) for one in tensors], 1)

    def _low(self, words: str, *how: str) -> Drawing:
        """Words at the height of what stands in boxes."""
        return drawing_of(self._style, [("", ()), (words, how)])

    def _lines(self, drawings: Sequence[Drawing], gap: int, end: Drawing | None = None) -> Drawing:
        """Drawings beside each other, going on in the next line where they do not fit; those without a gap touch."""
        lines: list[Drawing] = []
        for one in drawings:
            if lines and (not self._form.wrapped or lines[-1].width + 1 + one.width <= self._room):
                lines[-1] = lines[-1].beside(one, gap) if gap else _touching(lines[-1], one)
            else:
                lines.append(one)
        return reduce(Drawing.above, [line.beside(end, 0) for line in lines] if end else lines)

    def _tensor(self, tensor: Tensor) -> Drawing:
        """Its parts as boxes that touch, and what is to be said of it below."""
        last = tensor.boxes[-1]
        end = Drawing(1, tuple(self._paint(last.part, sign) for sign in "┐│┘")) if last else Drawing(0)
        gap = drawing_of(self._style, [("┌───", ("dim",)), (f"│ {ELLIPSIS} ", ("dim",)), ("└───", ("dim",))])
        boxes = [gap if box is None else self._box(box) for box in tensor.boxes]
        drawing = self._lines(boxes, 0, end)
        colours = {"bad": ("red", "bold"), "good": ("green",)}
        below = [
            (line, colours.get(kind, ("dim",)))
            for kind, text in tensor.notes
            for line in (text.split(", ") if kind == "summary" and self._form.wrapped else [text])
        ]
        return drawing.above(drawing_of(self._style, below)) if below else drawing

    def _paint(self, part: Part, text: str) -> str:
        if part.reduced:
            return self._style.paint(text, "bold")
        return self._style.rank(part.origins[0], text) if part.sources else self._style.paint(text, "dim")

    def _box(self, box: Box) -> Drawing:
        """A box without its right edge."""
        part, label = box.part, f" {box.label} "
        taken = sum(len(cell.text) + 1 for cell in box.cells)
        inner = max(len(label), taken) + 1
        painted = " ".join(
            self._style.paint(cell.text, "red", "bold") if cell.wrong else self._paint(part, cell.text)
            for cell in box.cells
        )
        lines = (
            self._paint(part, f"┌{label}{'─' * (inner - len(label))}"),
            f"{self._paint(part, '│')} {painted}{' ' * (inner - taken)}",
            self._paint(part, f"└{'─' * inner}"),
        )
        return Drawing(inner + 1, lines)


def _touching(left: Drawing, right: Drawing) -> Drawing:
    """Both, where the left edge of the right one becomes an edge of both."""
    top, middle, bottom = right.lines
    return left.beside(Drawing(right.width, (top.replace("┌", "┬", 1), middle, bottom.replace("└", "┴", 1))), 0)
