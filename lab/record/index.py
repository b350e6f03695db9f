"""The index of what ranks printed: a line for each piece, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from lab.record.layout import MOST_RANKS, MOST_SHOWN_RANKS
from lab.record.record_files import parse_line, read_lines

_LONGEST_LOG = 1 << 50
_LONGEST_PIECE = 1 << 26
_LONGEST_LINE = 1 << 12
_LATEST = 1e11
"""Indices, bytes and Unix times beyond these are damage."""


class Piece(NamedTuple):
    """Something that a rank printed at once."""

    rank: int
    stream: int
    """1: standard output, 2: standard error, 3: the terminal that the rank had."""
    time: float
    """Unix time at which the agent read it."""
    data: bytes


class IndexEntry(NamedTuple):
    """Where a piece of output stands in the log of its rank."""

    rank: int
    stream: int
    offset: int
    length: int
    time: float


class IndexReader:
    """Reads the index of a record in parts. A line that names a part of a log again is damage."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        """Where the next line of the index begins."""
        self._ends: dict[int, int] = {}
        """By rank: how much of its log the lines so far have named."""

    def read(self, index: BinaryIO) -> Iterator[IndexEntry]:
        """The entries since the last one, of whole lines; without those that are damaged."""
        index.seek(self.position)
        for line in read_lines(index, _LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                return
            self.position = self.position + len(line) if line.endswith(b"\n") else index.tell()
            entry = _read_entry(line)
            if entry is not None and self._is_new(entry):
                self._ends[entry.rank] = entry.offset + entry.length
                yield entry

    def _is_new(self, entry: IndexEntry) -> bool:
        known = self._ends.get(entry.rank)
        return entry.offset >= known if known is not None else len(self._ends) <= MOST_SHOWN_RANKS


def _read_entry(line: bytes) -> IndexEntry | None:
    """A line of the index of output; None where it is damaged."""
    try:
        rank, stream, offset, length, when = parse_line(line)
        entry = IndexEntry(int(rank), int(stream), int(offset), int(length), float(when))
    except (ArithmeticError, TypeError, ValueError):
        return None
    sane = -1 <= entry.rank < MOST_RANKS and 0 <= entry.offset < _LONGEST_LOG and 0 <= entry.length < _LONGEST_PIECE
    return entry if sane and 0 <= entry.time < _LATEST else None
