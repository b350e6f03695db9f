"""Define how verdicts look, colour text for terminals, and format rows of text in columns.

NO_COLOR and FORCE_COLOR are honoured. Ranks or nodes with the same content share one row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import IO, NamedTuple, TypeVar

from lab.words import clip_end, group_pairs, rank_spans


class Tone(NamedTuple):
    """Describe how a verdict looks."""

    sign: str
    terminal: str
    """Name of a terminal colour."""
    colour: str
    """Suits light and dark backgrounds."""
    variable: str
    """Name of the colour on pages."""


VERDICTS = {
    "passed": Tone("✔", "green", "#2da44e", "good"),
    "failed": Tone("✘", "red", "#e5484d", "bad"),
    "hung": Tone("∞", "yellow", "#bf8700", "warn"),
    "timeout": Tone("◷", "yellow", "#bf8700", "warn"),
    "error": Tone("!", "magenta", "#a371f7", "odd"),
    "running": Tone("▸", "dim", "#838a94", "muted"),
}
STATUSES = {
    **VERDICTS,
    "flaky": Tone("~", "yellow", "#bf8700", "warn"),
    "skipped": Tone("-", "dim", "#838a94", "muted"),
}
"""Statuses of a suite's case: a verdict, `flaky` if it passed only on a retry, or `skipped`."""

_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_CODES = {"bold": "1", "dim": "2", **{name: str(code) for code, name in enumerate(_COLOURS, start=31)}}
_RANK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Style(NamedTuple):
    """Paint text, or leave it unchanged."""

    colour: bool
    width: int | None = None
    """Columns of the terminal; None: lines can have any length."""

    def paint(self, text: str, *styles: str) -> str:
        """Return the text in these colours."""
        if not self.colour or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def rank(self, rank: int, text: str) -> str:
        """Return the text in the colour of a rank."""
        return self.paint(text, rank_style(rank))

    def verdict(self, verdict: str) -> str:
        """Return a verdict or status with its sign."""
        tone = STATUSES[verdict]
        return self.paint(f"{tone.sign} {verdict}", tone.terminal, "bold")


def rank_style(rank: int) -> str:
    """Return the terminal colour of a rank."""
    return _RANK_COLOURS[rank % len(_RANK_COLOURS)]


def style_for(stream: IO[str]) -> Style:
    """Return the style for a stream."""
    terminal = stream.isatty()
    width = os.get_terminal_size(stream.fileno()).columns or None if terminal else None
    colour = bool(os.environ.get("FORCE_COLOR")) or (terminal and os.environ.get("TERM") != "dumb")
    return Style(colour=colour and not os.environ.get("NO_COLOR"), width=width)


MANY = 16
"""Up to this many ranks or nodes have a line each; of more, equal ones share a line."""
_MOST_ALIKE = 6
"""Most texts shown that differ only in their numbers; the others are counted."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def group_equal(things: Iterable[tuple[int, K]]) -> list[tuple[list[int], K]]:
    """Return each distinct value with the numbers that have it, in the order of first occurrence."""
    numbers_by_thing = group_pairs((thing, number) for number, thing in things)
    return [(numbers, thing) for thing, numbers in numbers_by_thing.items()]


def group_by_kind(things: Iterable[T], kind: Callable[[T], Hashable], most: int = MANY) -> list[list[T]]:
    """Group items of one kind, in the order of first occurrence; up to `most` items stay separate."""
    things = list(things)
    if len(things) <= most:
        return [[thing] for thing in things]
    return list(group_pairs((kind(thing), thing) for thing in things).values())


def group_neighbours(ranks: Sequence[int]) -> list[Sequence[int]]:
    """Group consecutive ranks into blocks of equal size, so that there are at most `MANY` blocks."""
    block_size = 1
    while len(ranks) > MANY * block_size:
        block_size *= 2
    return [ranks[first : first + block_size] for first in range(0, len(ranks), block_size)]


def mask_numbers(text: str) -> str:
    """Replace the numbers in a text, so that texts that differ only in numbers become equal."""
    return _NUMBER.sub("#", text)


def collapse_similar(
    groups: Sequence[tuple[list[int], K]], form: Callable[[K], Hashable]
) -> list[tuple[list[int], K, int]]:
    """Collapse items of the same form: of many, show the first ones and the last.

    Args:
        groups: things with the numbers of those that have them, see `group_equal`.
        form: returns what two things have in common if one can represent the other.

    Returns:
        The things in order, each with a count: 0, or the number of things that this entry represents. The numbers of
        those stand with it.
    """
    of_form = group_pairs((form(thing), index) for index, (_, thing) in enumerate(groups))
    left: dict[int, list[int]] = {}
    for indices in of_form.values():
        if len(indices) > _MOST_ALIKE:
            left[indices[_MOST_ALIKE - 2]] = indices[_MOST_ALIKE - 2 : -1]
    hidden = {index for indices in left.values() for index in indices[1:]}
    shown = []
    for index, (numbers, thing) in enumerate(groups):
        if index in left:
            shown.append((sorted(n for other in left[index] for n in groups[other][0]), thing, len(left[index])))
        elif index not in hidden:
            shown.append((numbers, thing, 0))
    return shown


def spans_text(numbers: Iterable[int], prefix: str = "") -> str:
    """Format ranks or nodes for a cell of a table: `0-126, 128-255`, `node0-node7`."""
    spans = rank_spans(numbers, prefix)
    return ", ".join([*spans[:6], "…", spans[-1]] if len(spans) > 8 else spans)


def span_text(texts: Sequence[str]) -> str:
    """Format the first and the last of consecutive texts: `127.1.2.1 to 127.1.2.9`."""
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def range_text(numbers: Iterable[float | None], write: Callable[[float | None], str]) -> str:
    """Format one number, or the minimum and the maximum: `1.2 s`, `1.2 s to 1.4 s`."""
    known = [number for number in numbers if number is not None]
    least, most = write(min(known, default=None)), write(max(known, default=None))
    return least if least == most else f"{least} to {most}"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> str:
    """Format a table with a header; cut lines that are longer than the terminal, so that rows stay rows.

    A line break in a cell becomes a space, because names in records from elsewhere can contain any character.
    """
    header, *rows = [[cell.replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        return text if style.width is None else clip_end(text, style.width)

    return "\n".join([style.paint(line(header), "bold"), *(line(row) for row in rows)])
