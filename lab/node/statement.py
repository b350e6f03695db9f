"""What a worker says to its agent: read and checked here, because a script can send whatever it likes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, get_args

from . import wire
from .worker_messages import Imported, Statement

DEEPEST = 100
"""How many lists and mappings may lie within each other in a note."""
LARGEST = 1e300
"""No number of a note is larger: a float must be able to hold it."""
_LATEST = 1e11
"""Unix times beyond are none."""
_LONGEST_BYTES = 1 << 18
_MOST_AT_ONCE = 1000


def waiting_statements(notes: socket.socket, rank: int) -> Iterator[tuple[Statement, int]]:
    """What waits in a rank's socket, each with its bytes; no more than fits in there, however fast somebody writes."""
    for _ in range(_MOST_AT_ONCE):
        try:
            data = notes.recv(_LONGEST_BYTES)
        except BlockingIOError:
            return
        told = read_statement(data)
        if told is not None and told.rank == rank:  # else not from `note`, or about another rank
            yield told, len(data)


def read_statement(datagram: bytes) -> Statement | None:
    """The statement in a datagram; None where it holds none that `lab.note` or a worker of the lab would send."""
    told = wire.decode(datagram)
    if not isinstance(told, get_args(Statement)):
        return None
    if isinstance(told, Imported):
        return told
    if not abs(told.time) < _LATEST or problem_with(getattr(told, "value", None)):
        return None
    return told  # type: ignore[no-any-return]


def problem_with(value: Any) -> str:
    """Why plain data cannot be a note, as the end of a sentence that begins with it; empty where it can."""
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, (dict, list)):
            if depth == DEEPEST:
                return f"is nested more than {DEEPEST} deep"
            waiting += [(one, depth + 1) for one in (item.values() if isinstance(item, dict) else item)]
        elif isinstance(item, (int, float)) and not abs(item) < LARGEST:
            return f"holds a number that is not below {LARGEST:g}"
    return ""
