"""A terminal that one rank has while others print: the output of the rank, and lines that wait until its line ends."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from functools import partial
from typing import IO

from lab.report.sanitize import sanitize_line_editing
from lab.words import format_count

_MOST_KEPT_BYTES = 1 << 20
_new_decoder = partial(getincrementaldecoder("utf-8"), "backslashreplace")
_UNFINISHED = r"\x1b(?:\[[\d?]{0,6})?\Z"
"""The beginning of a control sequence without its end."""


class SharedTerminal:
    """The terminal of the lab's user; one rank has it at a time."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self.rank: int | None = None
        """The rank that has it."""
        self._raw = False
        self._open = False
        """Whether that rank has written an unfinished line."""
        self._decoder = _new_decoder()
        self._rest = ""
        """The beginning of a control sequence."""
        self._kept: list[tuple[int, bytes]] = []
        self._kept_bytes = self._dropped = 0

    @property
    def busy(self) -> bool:
        """Whether output of others would now disturb what the user types."""
        return self.rank is not None and self._open

    def assign(self, rank: int | None, *, raw: bool) -> None:
        """Give it to a rank, or to none; with `raw`, its control sequences have their effect."""
        self.rank, self._raw, self._decoder, self._rest = rank, raw, _new_decoder(), ""

    def write(self, data: bytes) -> None:
        """Show output of the rank."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        if not self._raw:
            if unfinished := re.search(_UNFINISHED, text):
                text, self._rest = text[: unfinished.start()], unfinished[0]
            text = sanitize_line_editing(text)
        if text:
            self._out.write(text)
            self._out.flush()
            self._open = not text.endswith("\n")

    def end_line(self) -> None:
        """Make the next output start on a new line."""
        if self._open:
            self._open = False
            self._out.write("\n")
            self._out.flush()

    def keep(self, rank: int, block: bytes) -> None:
        """Keep output of another rank until it can be shown."""
        if self._kept_bytes + len(block) > _MOST_KEPT_BYTES:
            self._dropped += block.count(b"\n")
            return
        self._kept.append((rank, block))
        self._kept_bytes += len(block)

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """Show the kept output if possible."""
        if not self._kept or self.busy:
            return
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        yield from kept
        if self._dropped:
            self._out.write(f"… {format_count(self._dropped, 'line')} more: see `lab logs`\n")
            self._dropped = 0
