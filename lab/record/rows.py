r"""Convert a stream to the rows that a terminal would show; of a row that is overwritten, only the last state.

Progress bars go back to the beginning of their row with a carriage return and write it again. Several bars also move up
by an escape sequence. Binary data is kept byte for byte, and so are lines that end in `\r\n`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

_MOVES = rb"(\n|\r+|\x1b\[\d?A)"
_NO_TEXT = rb"[\x00-\x06\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
_LONGEST_BYTES = 1 << 16
_BINARY_BYTES = 1 << 12
"""As much output after binary data counts as binary too, because short parts of it look like text."""
_MOST_ROWS = 20


def _is_text(data: bytes) -> bool:
    """Return whether data is text, which may end within a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return re.search(_NO_TEXT, data) is None


class _Row:
    """A row that may still change."""

    def __init__(self, text: bytes = b"", *, begun: bool = False, end: bytes = b"") -> None:
        self.text = text
        """Its visible text."""
        self.written = text
        """Everything that a rank wrote to it, as far as it is kept."""
        self.back = False
        """Whether the next text overwrites the visible one."""
        self.bar = False
        """Whether text was overwritten."""
        self.begun = begun
        """Whether its beginning was already released."""
        self.end = end

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()

    @property
    def is_unmoved(self) -> bool:
        """Whether the stream never went back in it."""
        return not (self.back or self.bar)

    def write(self, text: bytes) -> None:
        self.written += text
        self.text = text if self.back else self.text + text
        self.bar |= self.back
        self.back = False

    def go_back(self, how: bytes) -> None:
        self.written += how
        self.back = True

    def content(self) -> bytes:
        """Return what to keep of it."""
        if not self.bar or not _is_text(self.written):
            return self.written + self.end
        return b"" if self.is_blank else (b"\r" if self.begun else b"") + self.text + self.end


class Rows:
    """The rows of one stream: releases settled rows, and holds rows that may still change.

    A row is settled at its end. An overwritten row is settled once the stream is too far below it to come back.

    Args:
        longest_bytes: a longer row is released in pieces.
        over: whether a carriage return goes back; otherwise every row stays as it is.
    """

    def __init__(self, longest_bytes: int = _LONGEST_BYTES, *, over: bool = True) -> None:
        self._over, self._longest_bytes = over, longest_bytes
        self._rows = [_Row()]
        self._at = 0
        """Index of the current row."""
        self._reach = 1
        """How many rows up the stream may move from there."""
        self._binary_left = 0
        """How many of the next bytes count as binary."""

    @property
    def open(self) -> Sequence[bytes]:
        """The visible text of rows that may still change."""
        return [row.text for row in self._rows if not row.is_blank]

    def feed(self, data: bytes) -> bytes:
        """Add output, and return what is settled now."""
        settled, is_plain = b"", len(self._rows) == 1 and self._rows[0].is_unmoved
        if not is_plain or (self._over and b"\r" in data):
            was_plain, is_plain = is_plain, self._is_binary(data)
            settled = self.end() if is_plain and not was_plain else b""
        if is_plain:
            row = self._rows[0]
            whole, newline, rest = data.rpartition(b"\n")
            settled += row.text + whole + newline if newline else b""
            row = self._rows[0] = _Row(rest) if newline else _Row(row.text + data, begun=row.begun, end=row.end)
            return settled + self._cut() if len(row.written) > self._longest_bytes else settled
        for part in filter(None, re.split(_MOVES, data)):
            self._write_part(part)
        return self._release_settled()

    def release_passed(self) -> bytes:
        """Release the rows above the current one: another stream continues, and nothing is below them yet."""
        return self._release(self._at) if self._rows[self._at].is_blank else b""

    def release_interrupted(self) -> bytes:
        """Release as `release_passed` does, and the beginning of a row that was not overwritten."""
        settled, row = self.release_passed(), self._rows[0]
        if len(self._rows) == 1 and row.is_unmoved:
            self._rows[0] = _Row(begun=row.begun or bool(row.text))
            return settled + row.text
        return settled

    def end(self) -> bytes:
        """Release everything: the stream has ended."""
        settled = b"".join(row.content() for row in self._rows)
        self._rows, self._at = [_Row()], 0
        return settled

    def _is_binary(self, data: bytes) -> bool:
        """Return whether the stream has binary data now: in this output, or shortly before it."""
        is_text = _is_text(data.lstrip(bytes(range(0x80, 0xC0))))  # the rest of a character, in UTF-8
        self._binary_left = max(0, self._binary_left - len(data)) if is_text else _BINARY_BYTES
        return self._binary_left > 0

    def _write_part(self, part: bytes) -> None:
        row = self._rows[self._at]
        if part == b"\n":
            row.end, row.back = part, False
            self._at += 1
            if self._at == len(self._rows):
                self._rows.append(_Row())
            elif self._rows[self._at].is_blank:
                self._rows[self._at] = _Row()
            else:
                self._rows[self._at].go_back(b"")
        elif part[:1] == b"\r":
            row.go_back(part)
        elif re.fullmatch(_MOVES, part):
            self._at = max(0, self._at - int(part[2:-1] or 1))
            self._reach = max(self._reach, len(self._rows) - 1 - self._at)
        else:
            row.write(part)

    def _release_settled(self) -> bytes:
        plain = max((at for at, row in enumerate(self._rows[: self._at]) if not (row.bar or row.is_blank)), default=-1)
        settled = self._release(max(plain + 1, self._at - self._reach, len(self._rows) - _MOST_ROWS))
        return settled + self._cut() if any(len(row.written) > self._longest_bytes for row in self._rows) else settled

    def _release(self, count: int) -> bytes:
        settled = b"".join(row.content() for row in self._rows[:count])
        del self._rows[:count]
        self._at = max(0, self._at - count)
        return settled

    def _cut(self) -> bytes:
        """Release the beginning of rows that are too long; of an overwritten row, forget the overwritten text."""
        settled = b""
        for row in list(self._rows):
            if len(row.written) <= self._longest_bytes:
                continue
            if row.bar and _is_text(row.written) and len(row.text) <= self._longest_bytes:
                row.written = row.text
                continue
            settled += self._release(self._rows.index(row))
            row.end, end = b"", row.end
            settled += row.content()
            self._rows[0] = _Row(begun=True, end=end)
        return settled
