"""What a picture says in sentences, and what stands in its boxes, on a terminal and as SVG."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Any

from lab.diagnosis.wording import join_ranks
from lab.features.pictures.model import (
    ELLIPSIS,
    Block,
    Picture,
    RankPicture,
    exact_text,
    extremes,
    label_text,
    number_text,
    odd_elements,
    shape_text,
    shown_of,
    summary_text,
    texts_that_differ,
)
from lab.features.values.expected import Part
from lab.operations import reduction
from lab.words import capital, format_bytes, format_duration, name_ranks, plural

_MOST_WRONG = 6
_LONGEST_ERROR = 160
_AVERAGES = "DistributedDataParallel has already divided these gradients by the {whole}, so their sum is the mean."


def sentence(picture: Picture) -> str:
    """What the operation does; nothing where the ranks called different ones."""
    if several_operations(picture):
        return ""
    root = next((f"Rank {one.rank}" for one in picture.ranks if one.role), "One rank")
    does = picture.step.operation.does.format(root=root, red=reduction(picture.reduce_op).noun)
    return f"{does} {_AVERAGES.format(whole=_whole(picture))}" if picture.averages else does


def several_operations(picture: Picture) -> bool:
    """Whether the ranks called different operations."""
    return not picture.step.message and len({rank.op for rank in picture.ranks if rank.op}) > 1


def below_name(picture: Picture, rank: RankPicture) -> str:
    """What stands below the name of a rank: its role, or what it called where others called something else."""
    return rank.op if several_operations(picture) else rank.role


def heading(picture: Picture) -> list[str]:
    """What stands below the title: operation, group and size; place; parameters whose gradients a bucket holds."""
    names = list(picture.first.parameters)
    if len(names) > 6:
        names = [*names[:4], f"… {len(names) - 5} more …", names[-1]]
    step, call, (least, most) = picture.step, picture.first, picture.sizes
    facts = [picture.reduce_op + (f", already divided by {_whole(picture)}" if picture.averages else "")]
    facts += [f"tag {call.tag}" if step.message else "", f"round {step.round}" if step.round else ""]
    group = step.group
    plain = group.label.startswith("[") and group.turn == 1  # the label of one without a name: its ranks
    named = "" if plain else f" {group.label}"
    facts.append("group default" if group.label == "default" else f"group{named} of {name_ranks(group.ranks)}")
    facts.append(group.backend)
    if most:
        a_rank = f"{'' if least == most else 'at most '}{format_bytes(most)} a rank"
        facts.append(format_bytes(most) if step.message else a_rank)
    facts.append(f"bucket {call.bucket} of DistributedDataParallel" if call.bucket is not None else "")
    function = f" in {call.function}" if call.function not in ("", "<module>") else ""
    via = f", via {call.via}" if call.via not in ("", step.op) else ""
    lines = [
        " · ".join(fact for fact in facts if fact),
        f"{call.source}{function}{via}" if call.source else "",
        f"gradients of {', '.join(names)}" if names else "",
    ]
    return [line for line in lines if line]


def _whole(picture: Picture) -> str:
    return "world size" if picture.step.group.label == "default" else "group size"


def kind_text(picture: Picture, *, after: bool) -> str:
    """Dtype and shape of the tensors on one side: `float32[3]`, `3 × float32[1]`; of many, that they differ."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    blocks = [block for side in sides for block in side]
    if not blocks:
        return ""
    dtypes, shapes = sorted({block.dtype for block in blocks}), {block.shape for block in blocks}
    if len(shapes) > 1:
        return f"{' or '.join(dtypes)} of several sizes"
    counts = {len(side) for side in sides if side}
    number = f"{counts.pop()} × " if len(counts) == len(dtypes) == 1 and counts != {1} else ""
    return number + shape_text(" or ".join(dtypes), shapes.pop())


def uniform(picture: Picture, *, after: bool) -> bool:
    """Whether all tensors of a side have one dtype and shape, so that it is enough to say it once."""
    sides = [rank.tensors(after=after) for rank in picture.ranks]
    return len({(block.dtype, block.shape) for side in sides for block in side}) <= 1


def absence(picture: Picture, rank: RankPicture, *, after: bool) -> str:
    """What stands on a side of a rank in place of tensors; empty where it has some."""
    if rank.state in ("missing", "unrecorded"):
        return "–" if after and not picture.step.message else _never(picture, rank)
    if after and rank.state == "unfinished":
        return "not yet" if picture.live else "never finished"
    if after and rank.state == "failed":
        return "failed"
    return "" if picture.step.message or rank.tensors(after=after) else "nothing"


def _never(picture: Picture, rank: RankPicture) -> str:
    if rank.state == "unrecorded":
        return "not on record"
    if not picture.step.message:
        return "has not come yet" if picture.live else "never entered"
    sends = rank.role == "source"
    if picture.live:
        return "has not sent yet" if sends else "has not come yet"
    return "never sent" if sends else "never received"


def verdict(picture: Picture) -> tuple[str, str]:
    """Whether the outputs are right: `good`, `bad` or `unknown`, and a sentence; empty where nothing is there."""
    op = picture.step.op
    if picture.check == "wrong":
        wrong = sum(len(block.wrong) + block.wrong_hash for rank in picture.ranks for block in rank.after)
        ranks = name_ranks([rank.rank for rank in picture.ranks if rank.wrong])
        return "bad", f"Not what {op} of the recorded inputs gives, in {plural(wrong, 'place')} on {ranks}."
    if picture.check == "right":
        return "good", f"Every output is what {op} of the recorded inputs gives."
    if picture.check == "partly":
        return "good", "All outputs that could be compared with the recorded inputs are right; some could not be."
    if picture.check == "nothing" or (picture.live and picture.step.state == "unfinished"):
        return "", ""
    return "unknown", f"Outputs were not compared with inputs: {_why_unchecked(picture)}."


def _why_unchecked(picture: Picture) -> str:
    if picture.disagreement:
        return "the calls do not fit each other"
    if not picture.step.operation.does:
        return f"what {picture.step.op} does is not known here"
    if any(rank.state == "unrecorded" for rank in picture.ranks):
        return "not all inputs are on record"
    if picture.step.state != "completed":
        return "not every rank finished it"
    if picture.reduce_op == "PREMUL_SUM":
        return "the factor is not on record"
    if any(block.late for rank in picture.ranks for block in rank.after):
        return "they were seen too late, when they might be changed already"
    if any(block.values is None for rank in picture.ranks for block in (*rank.before, *rank.after)):
        return "the tensors were too large for their values to be kept (see lab run --trace-values)"
    return "not all inputs are on record"


def remarks(picture: Picture) -> list[str]:
    """What else there is to say, the important first."""
    found = [capital(picture.disagreement) + "."] if picture.disagreement else []
    missing = [rank for rank in picture.ranks if rank.state == "missing"]
    unrecorded = [rank.rank for rank in picture.ranks if rank.state == "unrecorded"]
    unfinished = [rank.rank for rank in picture.ranks if rank.state == "unfinished"]
    if missing:
        ranks = name_ranks([rank.rank for rank in missing])
        verb = _never(picture, missing[0])
        found.append(f"{capital(ranks)} {verb if len(missing) == 1 else verb.replace('has', 'have')}.")
    if unrecorded:
        found.append(f"What {name_ranks(unrecorded)} did is not on record.")
    if unfinished and not picture.live:
        found.append(f"{capital(name_ranks(unfinished))} never finished.")
    errors = {
        rank.rank: textwrap.shorten(rank.error.splitlines()[0], _LONGEST_ERROR, placeholder=" …")
        for rank in picture.ranks
        if rank.error
    }
    found += [capital(clause) for clause in join_ranks((rank, f"failed: {error}") for rank, error in errors.items())]
    found += _wrong_elements(picture)
    pickles = [block for rank in picture.ranks for block in (*rank.before, *rank.after) if block.pickled]
    if pickles:
        found.append("These bytes are Python objects, pickled; where they differ in length, the shorter are padded.")
    undefined = [r.rank for r in picture.ranks if r.after and not any(block.defined for block in r.after)]
    if undefined and picture.leaves_open and not missing:
        found.append(
            f"What {name_ranks(undefined)} hold{'s' if len(undefined) == 1 else ''} afterwards is not defined."
        )
    found += [f"Expected by the scenario, and not met: {text}" for text in picture.unmet]
    return found


def _wrong_elements(picture: Picture) -> list[str]:
    places = [(rank, i, block, k) for rank in picture.ranks for i, block in enumerate(rank.after) for k in block.wrong]
    found = []
    for rank, index, block, element in places[:_MOST_WRONG]:
        if block.values is None or block.expected is None:
            found.append("")
            continue
        got, expected = texts_that_differ(block.values[element], block.expected[element])
        where = f"tensor {index}, element {element}" if len(rank.after) > 1 else f"element {element}"
        because = _because(picture, block, element)
        found.append(f"Rank {rank.rank}, {where}: {got}, but it should be {expected}{because}.")
    if len(places) > _MOST_WRONG:
        found.append(f"And {len(places) - _MOST_WRONG} more: see --json.")
    found += [
        f"Rank {rank.rank} holds a tensor that is not a copy of rank {block.parts[0].origins[0]}'s: "
        "their hashes differ."
        for rank in picture.ranks
        for block in rank.after
        if block.wrong_hash
    ]
    return found


def _because(picture: Picture, block: Block, element: int) -> str:
    """Where the expected value comes from: ` = 2.0 (rank 0) + 3.0 (rank 1)`."""
    ends = list(accumulate(part.count for part in block.parts))
    at = bisect_right(ends, element)
    if at == len(ends):
        return ""
    part = block.parts[at]
    element -= ends[at] - part.count
    inputs = []
    for source in part.sources:
        values = picture.rank(source.rank).before[source.tensor].values or ()
        if source.start + element >= len(values):  # it is not on record
            return ""
        inputs.append((number_text(values[source.start + element]), source.rank))
    if not part.reduced:
        return f", from rank {inputs[0][1]}"
    if picture.reduce_op == "SUM" and len(inputs) <= 4:
        return " = " + " + ".join(f"{value} (rank {rank})" for value, rank in inputs)
    shown = ["…" if i is None else inputs[i][0] for i in shown_of(len(inputs), 8)]
    return f": the {reduction(picture.reduce_op).noun} of {', '.join(shown)}"


def rows(picture: Picture, most: int) -> list[RankPicture | str]:
    """The ranks to be drawn; of too many, those where something is to be seen, and words in place of the others."""
    ranks = picture.ranks
    needed = [i for i, rank in enumerate(ranks) if rank.role or rank.wrong or rank.state != "completed"]
    shown = shown_of(len(ranks), most, needed)
    found: list[RankPicture | str] = []
    for position, index in enumerate(shown):
        if index is not None:
            found.append(ranks[index])
            continue
        before, after = shown[position - 1], shown[position + 1]
        if before is not None and after is not None:
            found.append(f"{ELLIPSIS} {name_ranks([rank.rank for rank in ranks[before + 1 : after]])}")
    return found


def waits(picture: Picture) -> list[tuple[int, str, float]]:
    """Rank, how long it waited for the last one in words, and as a share of the longest wait."""
    longest = max((rank.waited_s or 0.0 for rank in picture.ranks), default=0.0)
    found = []
    for rank in picture.ranks:
        if picture.live and picture.step.state == "unfinished":
            found.append((rank.rank, "has come" if rank.op else _never(picture, rank), 1.0 if rank.op else 0.0))
        elif rank.waited_s is None:
            told = "waited in vain" if rank.op else _never(picture, rank)
            found.append((rank.rank, "failed" if rank.error else told, 1.0 if rank.op else 0.0))
        elif rank.waited_s == 0:
            found.append((rank.rank, "came last", 0.0))
        else:
            found.append((rank.rank, f"waited {format_duration(rank.waited_s)}", rank.waited_s / longest))
    return found


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
        self.rows = rows(picture, most_ranks)
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
        merged = {}
        for place, parts in found.items():
            _, start, count = place
            odd, most = (
                dict.fromkeys(i for same in zip_longest(*(which(v) for _, v in parts)) for i in same if i is not None)
                for which in (odd_elements, extremes)
            )  # the first of each tensor, then the second of each; nothing twice
            wrong = [i - start for block, _ in parts for i in block.wrong if 0 <= i - start < count]
            merged[place] = _Parts(count, [*odd], [i for i in most if i not in odd], wrong)
        return merged


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


def _blocks(picture: Picture, rank: RankPicture, *, after: bool) -> tuple[Block, ...]:
    return () if absence(picture, rank, after=after) else rank.tensors(after=after)


def _cells(block: Block, part: Part, start: int, elements: Sequence[int | None]) -> tuple[Cell, ...]:
    if not part.count:
        return (Cell("empty"),)
    if block.pickled:
        cells = [(f"pickle, {part.count} B", bool(block.wrong or block.wrong_hash))]
    elif block.values is None:
        cells = [(plural(part.count, "element"), block.wrong_hash)]
    else:
        wrong = {element - start for element in block.wrong}
        cells = [(ELLIPSIS if i is None else number_text(block.values[start + i]), i in wrong) for i in elements]
    return tuple(Cell(f"✘{text}" if wrong else text, wrong) for text, wrong in cells)


def _notes(picture: Picture, block: Block, limits: Limits, *, after: bool) -> list[tuple[str, str]]:
    notes = []
    if block.values is None:
        notes.append(("kind", "" if uniform(picture, after=after) else shape_text(block.dtype, block.shape)))
        notes.append(("summary", "seen too late" if block.late else summary_text(block.summary)))
    if block.wrong_hash:
        notes.append(("bad", "✘ another tensor"))
    if block.wrong and block.expected is not None:
        shown = shown_of(len(block.expected), limits.values, block.wrong)
        texts = [ELLIPSIS if i is None else number_text(block.expected[i]) for i in shown]
        notes.append(("good", f"should be {' '.join(texts)}"))
    return notes
