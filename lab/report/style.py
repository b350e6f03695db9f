"""How verdicts look, and colour for terminals, none for files: honours NO_COLOR and FORCE_COLOR."""

from __future__ import annotations

import os
from typing import IO, NamedTuple


class Tone(NamedTuple):
    """How a verdict looks."""

    sign: str
    terminal: str
    """Name of a terminal's colour."""
    colour: str
    """For light and for dark backgrounds."""
    variable: str
    """Name of the page's colour."""


VERDICTS = {
    "passed": Tone("✔", "green", "#2da44e", "good"),
    "failed": Tone("✘", "red", "#e5484d", "bad"),
    "hung": Tone("∞", "yellow", "#bf8700", "warn"),
    "error": Tone("!", "magenta", "#a371f7", "odd"),
}
STATUSES = {
    **VERDICTS,
    "flaky": Tone("~", "yellow", "#bf8700", "warn"),
    "skipped": Tone("-", "dim", "#838a94", "muted"),
}
"""What may come of a case of a suite: a verdict, `flaky` where it passed only when it was tried again, or `skipped`."""

_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_CODES = {"bold": "1", "dim": "2", **{name: str(code) for code, name in enumerate(_COLOURS, start=31)}}
_RANK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Style(NamedTuple):
    """Paints text, or leaves it as it is."""

    colour: bool
    width: int | None = None
    """Columns of the terminal; None where lines may be as long as they like."""

    def paint(self, text: str, *styles: str) -> str:
        """The text in these colours."""
        if not self.colour or not styles:
            return text
        codes = ";".join(_CODES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def rank(self, rank: int, text: str) -> str:
        """The text in the colour of a rank."""
        return self.paint(text, rank_style(rank))

    def verdict(self, verdict: str) -> str:
        """A verdict, or what came of a case, with its sign."""
        tone = STATUSES[verdict]
        return self.paint(f"{tone.sign} {verdict}", tone.terminal, "bold")


def rank_style(rank: int) -> str:
    """The colour of a rank on a terminal."""
    return _RANK_COLOURS[rank % len(_RANK_COLOURS)]


def style_for(stream: IO[str]) -> Style:
    """The style that suits a stream."""
    terminal = stream.isatty()
    width = os.get_terminal_size(stream.fileno()).columns or None if terminal else None
    colour = bool(os.environ.get("FORCE_COLOR")) or (terminal and os.environ.get("TERM") != "dumb")
    return Style(colour=colour and not os.environ.get("NO_COLOR"), width=width)
