"""Lines at the bottom of a terminal that are replaced in place, while what is printed goes by above them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import IO

_COLOUR = r"\x1b\[[0-9;:]*m"
_WIPE_LINE = "\r\x1b[2K"
_UP = "\x1b[1A"


class Bottom:
    """The bottom of a terminal; of any other stream nothing is ever shown there."""

    def __init__(self, stream: IO[str] | None) -> None:
        usable = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stream = stream if usable else None
        self._shown: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        """Whether there is such a bottom."""
        return self._stream is not None

    @property
    def size(self) -> os.terminal_size:
        """Columns that a line may have, and half of the rows, for which there is room."""
        columns, rows = os.get_terminal_size(self._stream.fileno()) if self._stream is not None else (0, 0)
        return os.terminal_size(((columns or 80) - 1, max(1, (rows or 24) // 2)))

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines in the place of those that are there; none may be longer than there is room for."""
        lines = tuple(lines)
        if self._stream is not None and lines != self._shown:
            self._stream.write(self._wiped() + "\n".join(lines))
            self._stream.flush()
            self._shown = lines

    def wipe(self) -> None:
        """Make room for what is printed."""
        self.show(())

    def _wiped(self) -> str:
        return _WIPE_LINE + (_UP + _WIPE_LINE) * (len(self._shown) - 1) if self._shown else ""


def fit(text: str, columns: int) -> str:
    """The text without colours, cut off where it takes more columns."""
    text = re.sub(_COLOUR, "", text).expandtabs()
    if text.isascii():
        return text if len(text) <= columns else f"{text[: columns - 1]}…"
    taken = 0
    for at, letter in enumerate(text):
        taken += _columns(letter)
        if taken > columns:
            return f"{_fitting(text[:at], columns - 1)}…"
    return text


def _fitting(text: str, columns: int) -> str:
    while text and sum(map(_columns, text)) > columns:
        text = text[:-1]
    return text


def _columns(letter: str) -> int:
    from unicodedata import combining, east_asian_width

    return 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1
