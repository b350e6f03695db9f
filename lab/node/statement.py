"""Statements of a worker to its agent: read and validated here, because a script can send anything."""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, get_args

from .messages import wire
from .messages.agent import Statement

SOCKET_VARIABLE = "LAB_NOTE_SOCKET"
"""Variable with the socket for statements of a worker and its descendants."""
SETTINGS_VARIABLE = "LAB_STARTED"
"""Variable with the settings of their recorder."""
STACK_SIGNAL = signal.SIGRTMAX - 2
"""Makes a process of a run write its Python stack; far from the signals that scripts use."""
DEEPEST = 100
"""Limit for the nesting of lists and mappings in a note."""
LARGEST = 1e300
"""Limit for the numbers of a note: a float can hold it."""
_LATEST = 1e11
"""Limit for Unix times."""
_LONGEST_BYTES = 1 << 18
_MOST_AT_ONCE = 1000
_CREDENTIALS = struct.Struct("3i")
_MOST_DESCRIPTORS = 16
_MORE_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_MOST_DESCRIPTORS * struct.calcsize("i"))
"""Buffer for the sender's identity and descriptors; the kernel closes all further descriptors."""


class Datagram(NamedTuple):
    """A statement and its sender."""

    statement: Statement
    bytes: int
    pid: int
    """Sender according to the kernel; 0 if unknown."""
    fds: list[int]
    """Descriptors that came with it; a receiver that takes them over removes them here."""


def bind_notes(path: str) -> socket.socket:
    """Return a non-blocking socket for the statements of one rank that knows its senders."""
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(path)
    notes.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    notes.setblocking(False)
    return notes


def receive_statements(notes: socket.socket) -> Iterator[Datagram]:
    """Yield the statements that wait in a rank's socket, at most as many as fit into it."""
    for _ in range(_MOST_AT_ONCE):
        try:
            data, ancillary, flags, _ = notes.recvmsg(_LONGEST_BYTES, _MORE_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        pid, fds = 0, list[int]()
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack(content)[0]
            elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(content) // array.array("i").itemsize * array.array("i").itemsize
                fds += array.array("i", content[:whole])
        try:
            statement = read_statement(data)
            if statement is not None and not flags & socket.MSG_CTRUNC:  # a larger one is not from the lab
                yield Datagram(statement, len(data), pid, fds)
        finally:
            for fd in fds:
                with suppress(OSError):
                    os.close(fd)


def read_statement(datagram: bytes) -> Statement | None:
    """Return the statement in a datagram; None if neither `lab.note` nor a worker of the lab would send it."""
    statement = wire.decode_message(datagram)
    if not isinstance(statement, get_args(Statement)):
        return None
    if not abs(statement.time) < _LATEST or problem_with(getattr(statement, "value", None)):
        return None
    return statement  # type: ignore[no-any-return]


def problem_with(value: Any) -> str:
    """Return why plain data cannot be a note, as the end of a sentence that begins with it; empty if it can."""
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
