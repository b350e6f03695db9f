"""Blocks of painted text that are put together: beside each other, padded, widened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.report.style import Style


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lines of one width, painted already, that can be put beside each other."""

    width: int
    """Columns; colours take none."""
    lines: tuple[str, ...] = ()

    def beside(self, other: Drawing, gap: int = 1) -> Drawing:
        """Both side by side."""
        height = max(len(self.lines), len(other.lines))
        rows = zip(self.padded(height), other.padded(height), strict=True)
        return Drawing(self.width + gap + other.width, tuple(f"{left}{' ' * gap}{right}" for left, right in rows))

    def above(self, other: Drawing) -> Drawing:
        """Both, one under the other."""
        width = max(self.width, other.width)
        return Drawing(width, (*self.widened(width).lines, *other.widened(width).lines))

    def padded(self, height: int) -> list[str]:
        """Its lines, and empty ones below."""
        return [*self.lines, *[" " * self.width] * (height - len(self.lines))]

    def widened(self, width: int) -> Drawing:
        """The same with room to its right."""
        return Drawing(width, tuple(line + " " * (width - self.width) for line in self.lines))


def drawing_of(style: Style, lines: Sequence[tuple[str, tuple[str, ...]]]) -> Drawing:
    """Lines of text, each in its colours."""
    width = max((len(text) for text, _ in lines), default=0)
    return Drawing(width, tuple(style.paint(text, *how) + " " * (width - len(text)) for text, how in lines))
