"""What stands in a picture's boxes, whether they are drawn on a terminal or as SVG: values, labels, lines below."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from lab.report.picture import story
from lab.report.picture.model import Block, Picture, RankPicture
from lab.report.picture.words import ELLIPSIS, label_text, number_text, shape_text, shown_of, summary_text
from lab.trace.parts import Part
from lab.words import plural


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


def tensors_of(picture: Picture, rank: RankPicture, limits: Limits, *, after: bool) -> list[Tensor | None]:
    """The tensors on one side of a rank; None in place of those that are not shown."""
    blocks = () if story.absence(picture, rank, after=after) else rank.tensors(after=after)
    wrong = [i for i, block in enumerate(blocks) if block.wrong or block.wrong_hash]
    shown = shown_of(len(blocks), limits.boxes, wrong)
    return [None if i is None else _tensor(picture, blocks[i], limits, after=after) for i in shown]


def _tensor(picture: Picture, block: Block, limits: Limits, *, after: bool) -> Tensor:
    ends = list(accumulate(part.count for part in block.parts))
    boxes = [
        None if i is None else _box(picture, block, block.parts[i], ends[i] - block.parts[i].count, limits.values)
        for i in shown_of(len(block.parts), limits.boxes, {bisect_right(ends, element) for element in block.wrong})
    ]
    return Tensor(tuple(boxes), tuple(note for note in _notes(picture, block, limits, after=after) if note[1]))


def _box(picture: Picture, block: Block, part: Part, start: int, most: int) -> Box:
    return Box(part, label_text(part, picture.reduce_op), _cells(block, part, start, most))


def _cells(block: Block, part: Part, start: int, most: int) -> tuple[Cell, ...]:
    if not part.count:
        return (Cell("empty"),)
    if block.pickled:
        return (_cell(f"pickle, {part.count} B", bool(block.wrong or block.wrong_hash)),)
    if block.values is None:
        return (_cell(plural(part.count, "element"), block.wrong_hash),)
    wrong = {element - start for element in block.wrong}
    shown = shown_of(part.count, most, [one for one in wrong if 0 <= one < part.count])
    texts = [ELLIPSIS if i is None else number_text(block.values[start + i]) for i in shown]
    return tuple(_cell(text, i in wrong) for text, i in zip(texts, shown, strict=True))


def _cell(text: str, wrong: bool) -> Cell:
    return Cell(f"✘{text}" if wrong else text, wrong)


def _notes(picture: Picture, block: Block, limits: Limits, *, after: bool) -> list[tuple[str, str]]:
    notes = []
    if block.values is None:
        notes.append(("kind", "" if story.uniform(picture, after=after) else shape_text(block.dtype, block.shape)))
        notes.append(("summary", summary_text(block.summary)))
    if block.wrong_hash:
        notes.append(("bad", "✘ another tensor"))
    if block.wrong and block.expected is not None:
        shown = shown_of(len(block.expected), limits.values, block.wrong)
        texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
        notes.append(("good", f"should be {' '.join(texts)}"))
    return notes
