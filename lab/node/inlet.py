"""The agent's side of what a worker reads: calls, a pipe, or a pseudo-terminal that it has, or may be given."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import NamedTuple

from .messages.agent import CALLED, FED, ON_REQUEST, OWN

_MOST_WAITING_BYTES = 1 << 20
"""The lab sends no more than a quarter of this before it is told that it was taken."""
_VDISABLE = b"\0"


class WorkerEnds(NamedTuple):
    """Descriptors for the worker; -1 where it has none."""

    stdin: int = -1
    terminal: int = -1
    """Its end of the pseudo-terminal."""
    granted: int = -1
    """Has a byte to read whenever the worker is given the terminal."""
    calls: int = -1
    """Where calls arrive."""
    answers: int = -1
    """Where it answers them."""

    def out_of_the_way(self) -> WorkerEnds:
        """The same, as duplicates far from the descriptors that scripts use; standard input is not among them."""
        return WorkerEnds(-1, *(one if one < 0 else fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 100) for one in self[1:]))

    def close(self) -> None:
        """Close them in the agent."""
        for fd in {*self} - {-1}:
            os.close(fd)


class Inlet:
    """Takes what a worker is to read, and gives it to the worker as that takes it."""

    def __init__(self, fd: int = -1, terminal: int = -1, grant: int = -1, answered: int = -1) -> None:
        self._fd = fd
        self._grant = grant
        self._waiting = b""
        self._last = False
        self.terminal = terminal
        """The agent's end of a pseudo-terminal, to be read by whoever has it; -1 where there is none."""
        self.answered = answered
        """Where answers to calls are to be read; -1 where there are none."""

    @property
    def waiting(self) -> int | None:
        """The descriptor that has to be writable for what waits; None where nothing does."""
        return self._fd if self._waiting and self._fd >= 0 else None

    def put(self, data: bytes, *, last: bool) -> tuple[int, bool]:
        """Take what is to be read; as `flush`."""
        self._waiting += data[: _MOST_WAITING_BYTES - len(self._waiting)]
        self._last |= last
        return self.flush()

    def flush(self) -> tuple[int, bool]:
        """Give the worker what it takes now; returns how many bytes that were, and whether it takes any more."""
        given = 0
        while self._waiting and self._fd >= 0:
            try:
                done = os.write(self._fd, self._waiting)
            except BlockingIOError:
                break
            except OSError:  # nobody reads
                self._close()
                break
            self._waiting, given = self._waiting[done:], given + done
        if self._last and not self._waiting:
            self._close()
        return given, self._fd < 0

    def grant(self) -> None:
        """Let the worker take the terminal."""
        with suppress(OSError):  # it has ended, or asks without taking
            os.write(self._grant, b"+")

    def resize(self, rows: int, columns: int) -> None:
        """Tell the worker how large its terminal is."""
        if self.terminal >= 0:
            size = (min(max(1, one), 0xFFFF) for one in (rows, columns))
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def close(self) -> None:
        """Let go of everything but the terminal and the answers, which are closed by whoever reads them."""
        self._close()
        if self._grant >= 0:
            os.close(self._grant)
            self._grant = -1

    def _close(self) -> None:
        self._waiting = b""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_inlet(kind: str) -> tuple[Inlet, WorkerEnds]:
    """Both sides of what a worker of this kind reads.

    Raises:
        OSError: there is no room for the pseudo-terminal that it is to have from the start.
    """
    if kind == FED:
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        return Inlet(write), WorkerEnds(stdin=read)
    if kind == CALLED:
        calls, call = os.pipe2(os.O_CLOEXEC)
        answered, answers = os.pipe2(os.O_CLOEXEC)
        for fd in (call, answered):
            os.set_blocking(fd, False)
        return Inlet(call, answered=answered), WorkerEnds(calls=calls, answers=answers)
    if kind not in (ON_REQUEST, OWN):
        return Inlet(), WorkerEnds()
    try:
        here, there = os.openpty()
    except OSError:
        if kind == OWN:
            raise
        return Inlet(), WorkerEnds()  # its breakpoints say that there is none
    settings = termios.tcgetattr(there)
    settings[6][termios.VSUSP] = _VDISABLE  # nobody could let the rank go on
    termios.tcsetattr(there, termios.TCSANOW, settings)
    typed = os.dup(here)
    for fd in (here, typed):
        os.set_blocking(fd, False)
    if kind == OWN:
        return Inlet(typed, here), WorkerEnds(terminal=there)
    granted, grant = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(grant, False)
    return Inlet(typed, here, grant), WorkerEnds(terminal=there, granted=granted)
