"""What ranks printed, read from the index and the logs of a record, in the order of arrival."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lab.record.layout import INDEX, LOGS, MOST_RANKS, MOST_SHOWN_RANKS, rank_log
from lab.record.record_files import MOST_LINES_BYTES, MOST_LOG_BYTES, open_file, parse_line, read_lines

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
            if entry is None or (entry.rank not in self._ends and len(self._ends) > MOST_SHOWN_RANKS):
                continue
            if entry.offset >= self._ends.get(entry.rank, 0):
                self._ends[entry.rank] = entry.offset + entry.length
                yield entry


def _read_entry(line: bytes) -> IndexEntry | None:
    """A line of the index of output; None where it is damaged."""
    try:
        rank, stream, offset, length, when = parse_line(line)
        entry = IndexEntry(int(rank), int(stream), int(offset), int(length), float(when))
    except (ArithmeticError, TypeError, ValueError):
        return None
    sane = -1 <= entry.rank < MOST_RANKS and 0 <= entry.offset < _LONGEST_LOG and 0 <= entry.length < _LONGEST_PIECE
    return entry if sane and 0 <= entry.time < _LATEST else None


_MOST_OPEN = 64
"""Logs that are open at once: a run may have thousands of ranks."""


def read_output(folder: Path, reader: IndexReader, most_bytes: float = math.inf) -> Iterator[Piece]:
    """The pieces since the last one that the reader gave, about so many bytes of them.

    Raises:
        RecordError: a file is refused.
    """
    try:
        index = open_file(folder, INDEX, MOST_LINES_BYTES)
    except OSError:
        return
    size = 0
    with index, _open_logs(folder) as read:
        for entry in reader.read(index):
            data = read(entry.rank, entry.offset, entry.length)
            yield Piece(rank=entry.rank, stream=entry.stream, time=entry.time, data=data)
            size += len(data)
            if size >= most_bytes:
                return


@contextmanager
def _open_logs(folder: Path) -> Iterator[Callable[[int, int, int], bytes]]:
    """What reads a part of the log of a rank, by offset and length, as far as it is there."""
    logs: dict[int, BinaryIO] = {}

    def read(rank: int, offset: int, length: int) -> bytes:
        with suppress(OSError):
            if rank not in logs:
                if len(logs) >= _MOST_OPEN:
                    logs.pop(next(iter(logs))).close()
                logs[rank] = open_file(folder, f"{LOGS}/{rank_log(rank)}", MOST_LOG_BYTES)
            logs[rank].seek(offset)
            return logs[rank].read(length)
        return b""

    try:
        yield read
    finally:
        for log in logs.values():
            log.close()
