"""The index of what ranks printed: a line for each piece, in the order of arrival."""

from __future__ import annotations

import json
from typing import NamedTuple

from lab.record.layout import MOST_RANKS

_LONGEST_LOG = 1 << 50
_LONGEST_PIECE = 1 << 26
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


def read_index(line: bytes) -> IndexEntry | None:
    """A line of the index of output; None where it is damaged."""
    try:
        rank, stream, offset, length, when = json.loads(line)
        entry = IndexEntry(int(rank), int(stream), int(offset), int(length), float(when))
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        return None
    sane = -1 <= entry.rank < MOST_RANKS and 0 <= entry.offset < _LONGEST_LOG and 0 <= entry.length < _LONGEST_PIECE
    return entry if sane and 0 <= entry.time < _LATEST else None
