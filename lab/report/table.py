"""Rows of text in columns, as wide as they need to be and no wider than the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from lab.report.style import Style
from lab.words import clip


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> str:
    """A table with a header; a line that is longer than the terminal is cut, so that rows stay rows.

    A line break in a cell becomes a space: names in a record of somebody else may hold any.
    """
    header, *rows = [[cell.replace("\n", " ") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        return text if style.width is None else clip(text, style.width)

    return "\n".join([style.paint(line(header), "bold"), *(line(row) for row in rows)])
