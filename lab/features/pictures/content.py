"""What stands in a picture's boxes, whether they are drawn on a terminal or as SVG: values, labels, lines below."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Any

from lab.features.pictures import story
from lab.features.pictures.model import Block, Picture, RankPicture
from lab.features.pictures.words import (
    ELLIPSIS,
    exact_text,
    extremes,
    label_text,
    number_text,
    odd_elements,
    shape_text,
    shown_of,
    summary_text,
)
from lab.trace.expected import Part
from lab.words import plural

_MOST_TOLD = 1000
"""Elements of a part that are told, whatever is drawn of them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value, or what stands for several."""

    text: str
    """With a sign before it where it is wrong."""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """Part of a tensor."""

    part: Part
    label: str
    cells: tuple[Cell, ...]
    block: Block
    start: int
    """Its first element in the tensor."""
    complete: bool
    """Whether there is a cell for each of its elements."""

    @property
    def told(self) -> str:
        """All its elements with all their digits, and what they should be; or what is known of them."""
        block, count = self.block, self.part.count
        what = shape_text(block.dtype, block.shape)
        if block.pickled or block.values is None:
            return ", ".join(filter(None, [what, summary_text(block.summary)]))
        told = range(self.start, self.start + min(count, _MOST_TOLD))
        values = " ".join(exact_text(block.values[i]) for i in told)
        rest = f" and {count - len(told):,} more" if count > len(told) else ""
        where = "" if count == block.count else f", {plural(count, 'element')} from number {self.start} on"
        expected = block.expected or ()
        should = [f"element {i} should be {exact_text(expected[i])}" for i in block.wrong if i in told]
        return "\n".join([f"{what}{where}: {values}{rest}", *should])


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a rank."""

    boxes: tuple[Box | None, ...]
    """None: in place of parts that are not shown."""
    notes: tuple[tuple[str, str], ...]
    """Lines below: `kind`, `summary`, `bad` or `good`, and text."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is shown."""

    values: int
    """Of a part."""
    boxes: int
    """Parts of a tensor, and tensors of a rank."""


Place = tuple[int, int, int]
"""A part of a tensor: number of the tensor, first element, number of elements."""


@dataclass(frozen=True, slots=True)
class Content:
    """What of a picture's tensors is shown within limits."""

    picture: Picture
    limits: Limits
    shown: Mapping[Place, Sequence[int | None]]
    """Which elements of parts of which not all are, the same ones for all ranks, before and after; None: left out."""
    tells: bool
    """Whether all that is not finite, or not quite zero, is among them."""

    def tensors(self, rank: RankPicture, *, after: bool) -> list[Tensor | None]:
        """The tensors on one side of a rank; None in place of those that are not shown."""
        blocks = _blocks(self.picture, rank, after=after)
        wrong = [i for i, block in enumerate(blocks) if block.wrong or block.wrong_hash]
        shown = shown_of(len(blocks), self.limits.boxes, wrong)
        return [None if i is None else self._tensor(blocks[i], i, after=after) for i in shown]

    def _tensor(self, block: Block, number: int, *, after: bool) -> Tensor:
        ends = list(accumulate(part.count for part in block.parts))
        wrong = {bisect_right(ends, element) for element in block.wrong}
        boxes = [
            None if i is None else self._box(block, block.parts[i], number, ends[i] - block.parts[i].count)
            for i in shown_of(len(block.parts), self.limits.boxes, wrong)
        ]
        notes = _notes(self.picture, block, self.limits, after=after)
        return Tensor(tuple(boxes), tuple(note for note in notes if note[1]))

    def _box(self, block: Block, part: Part, number: int, start: int) -> Box:
        elements = self.shown.get((number, start, part.count), range(part.count))
        cells = _cells(block, part, start, elements)
        complete = block.values is None or None not in elements
        return Box(part, label_text(part, self.picture.reduce_op), cells, block, start, complete)


class Contents:
    """What there is to be shown of so many ranks of a picture, within whatever limits."""

    def __init__(self, picture: Picture, most_ranks: int) -> None:
        self._picture = picture
        self.rows = story.rows(picture, most_ranks)
        self.ranks = [row for row in self.rows if not isinstance(row, str)]

    def within(self, limits: Limits) -> Content:
        """What is shown within limits."""
        shown = {place: part.shown(limits.values) for place, part in self._parts.items() if place[2] > limits.values}
        tells = all(len(part.odd) <= limits.values for place, part in self._parts.items() if place in shown)
        return Content(self._picture, limits, shown, tells)

    @cached_property
    def _parts(self) -> dict[Place, _Parts]:
        """The parts of tensors at each place of which some elements may be left out."""
        found: dict[Place, list[tuple[Block, Sequence[Any]]]] = defaultdict(list)
        for rank in self.ranks:
            for after in (False, True):
                for number, block in enumerate(_blocks(self._picture, rank, after=after)):
                    starts = accumulate((part.count for part in block.parts), initial=0)
                    for part, start in zip(block.parts, starts, strict=False):
                        if part.count > 2 and block.values is not None and not block.pickled:
                            found[number, start, part.count].append((block, block.values[start : start + part.count]))
        return {place: _parts_at(place, parts) for place, parts in found.items()}


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of several tensors at one place; elements count from its first."""

    count: int
    odd: list[int]
    """Elements that are not finite or not quite zero in one of them."""
    extremes: list[int]
    wrong: list[int]

    def shown(self, most: int) -> list[int | None]:
        """Which elements are shown: some of what is wrong, and what says most."""
        return shown_of(self.count, most, self.wrong, [*self.odd, *self.extremes])


def _parts_at(place: Place, parts: Sequence[tuple[Block, Sequence[Any]]]) -> _Parts:
    _, start, count = place
    wrong = [element - start for block, _ in parts for element in block.wrong if 0 <= element - start < count]
    odd, most = (_in_turn([which(values) for _, values in parts]) for which in (odd_elements, extremes))
    return _Parts(count, odd, [element for element in most if element not in odd], wrong)


def _in_turn(lists: Sequence[Sequence[int]]) -> list[int]:
    """The first of each, then the second of each; nothing twice."""
    return list(dict.fromkeys(one for same in zip_longest(*lists) for one in same if one is not None))


def _blocks(picture: Picture, rank: RankPicture, *, after: bool) -> tuple[Block, ...]:
    return () if story.absence(picture, rank, after=after) else rank.tensors(after=after)


def _cells(block: Block, part: Part, start: int, elements: Sequence[int | None]) -> tuple[Cell, ...]:
    if not part.count:
        return (Cell("empty"),)
    if block.pickled:
        return (_cell(f"pickle, {part.count} B", bool(block.wrong or block.wrong_hash)),)
    if block.values is None:
        return (_cell(plural(part.count, "element"), block.wrong_hash),)
    wrong = {element - start for element in block.wrong}
    texts = [ELLIPSIS if i is None else number_text(block.values[start + i]) for i in elements]
    return tuple(_cell(text, i in wrong) for text, i in zip(texts, elements, strict=True))


def _cell(text: str, wrong: bool) -> Cell:
    return Cell(f"✘{text}" if wrong else text, wrong)


def _notes(picture: Picture, block: Block, limits: Limits, *, after: bool) -> list[tuple[str, str]]:
    notes = []
    if block.values is None:
        notes.append(("kind", "" if story.uniform(picture, after=after) else shape_text(block.dtype, block.shape)))
        notes.append(("summary", "seen too late" if block.late else summary_text(block.summary)))
    if block.wrong_hash:
        notes.append(("bad", "✘ another tensor"))
    if block.wrong and block.expected is not None:
        shown = shown_of(len(block.expected), limits.values, block.wrong)
        texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
        notes.append(("good", f"should be {' '.join(texts)}"))
    return notes
