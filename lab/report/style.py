"""Define how verdicts look, and colour text for terminals; honour NO_COLOR and FORCE_COLOR."""

from __future__ import annotations

import os
from typing import IO, NamedTuple


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
