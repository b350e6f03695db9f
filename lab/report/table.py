"""Rows of text in columns; what many ranks or nodes have in common is shown once, under all their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from lab.report.style import Style
from lab.words import clip_end, rank_spans

MANY = 16
"""Of so many ranks or nodes each has a line of its own; of more, those that are alike share one."""
_MOST_ALIKE = 6
"""Texts that differ in their numbers only: so many are shown, and how many more there are."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def group_equal(things: Iterable[tuple[int, K]]) -> list[tuple[list[int], K]]:
    """Each thing once, with the numbers of those that have it, in the order of the first of them."""
    found: dict[K, list[int]] = {}
    for number, thing in things:
        found.setdefault(thing, []).append(number)
    return [(numbers, thing) for thing, numbers in found.items()]


def group_by_kind(things: Iterable[T], kind: Callable[[T], Hashable], most: int = MANY) -> list[list[T]]:
    """Things of one kind put together, in the order of the first of each; of so many at most, each is by itself."""
    things = list(things)
    if len(things) <= most:
        return [[thing] for thing in things]
    groups: dict[Hashable, list[T]] = {}
    for thing in things:
        groups.setdefault(kind(thing), []).append(thing)
    return list(groups.values())


def mask_numbers(text: str) -> str:
    """What texts have in common that differ in their numbers only."""
    return _NUMBER.sub("#", text)


def collapse_similar(
    groups: Sequence[tuple[list[int], K]], form: Callable[[K], Hashable]
) -> list[tuple[list[int], K, int]]:
    """Things, each with how many of its form it stands for: of many, the first ones and the last stand for themselves.

    Args:
        groups: things with the numbers of those that have them, see `alike`.
        form: what two things have in common of which one may stand for the other.

    Returns:
        As given, in order, with a count: 0, or that of the things that are left out here, whose numbers stand with it.
    """
    of_form: dict[Hashable, list[int]] = {}
    for place, (_, thing) in enumerate(groups):
        of_form.setdefault(form(thing), []).append(place)
    left: dict[int, list[int]] = {}
    for places in of_form.values():
        if len(places) > _MOST_ALIKE:
            left[places[_MOST_ALIKE - 2]] = places[_MOST_ALIKE - 2 : -1]
    hidden = {place for places in left.values() for place in places[1:]}
    shown = []
    for place, (numbers, thing) in enumerate(groups):
        if place in left:
            shown.append((sorted(n for other in left[place] for n in groups[other][0]), thing, len(left[place])))
        elif place not in hidden:
            shown.append((numbers, thing, 0))
    return shown


def spans_text(numbers: Iterable[int], prefix: str = "") -> str:
    """Ranks or nodes in a cell of a table: `0-126, 128-255`, `node0-node7`."""
    spans = rank_spans(numbers, prefix)
    cut = [*spans[:6], "…", spans[-1]] if len(spans) > 8 else spans
    return ", ".join(cut)


def span_text(texts: Sequence[str]) -> str:
    """The first to the last of texts that follow each other: `127.1.2.1 to 127.1.2.9`."""
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def range_text(numbers: Iterable[float | None], write: Callable[[float | None], str]) -> str:
    """`1.2 s`, or from the least to the most: `1.2 s to 1.4 s`."""
    known = [number for number in numbers if number is not None]
    least, most = write(min(known, default=None)), write(max(known, default=None))
    return least if least == most else f"{least} to {most}"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> str:
    """A table with a header; a line that is longer than the terminal is cut, so that rows stay rows.

    A line break in a cell becomes a space: names in a record of somebody else may hold any.
    """
    header, *rows = [[cell.replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        return text if style.width is None else clip_end(text, style.width)

    return "\n".join([style.paint(line(header), "bold"), *(line(row) for row in rows)])
