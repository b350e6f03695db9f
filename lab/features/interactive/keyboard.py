"""The terminal of this process: what is typed, as it is typed, while a rank has it; then it is as it was before."""

from __future__ import annotations

import os
import signal
import termios
from typing import Any

from lab.errors import UsageError

_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6
_CHUNK_BYTES = 4096


class Keyboard:
    """The terminal that is the standard input of this process.

    Every key is read as it is while it is taken, Ctrl-C too; what is written to the terminal acts as ever.
    """

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._before: list[Any] | None = None
        self._signals: tuple[int, int] | None = None
        self._handler: Any = None

    @classmethod
    def find(cls) -> Keyboard | None:
        """The terminal, if somebody sits at it: both standard streams are one, and this process has it."""
        try:
            usable = os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return None
        return cls() if usable else None

    @classmethod
    def need(cls) -> Keyboard:
        """The terminal.

        Raises:
            UsageError: nobody sits at one.
        """
        found = cls.find()
        if found is None:
            raise UsageError(
                "there is no terminal for an interactive rank", "run it where standard input and output are one"
            )
        return found

    @property
    def taken(self) -> bool:
        """Whether keys are read as they are."""
        return self._before is not None

    @property
    def fd(self) -> int:
        """What is typed can be read there while it is taken."""
        return self._fd

    @property
    def resized_fd(self) -> int:
        """Can be read when the size has changed, while it is taken."""
        return self._signals[0] if self._signals else -1

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        columns, rows = os.get_terminal_size(self._fd)
        return rows, columns

    def take(self) -> None:
        """Have every key as it is typed, but for what was typed before; watch the size."""
        if self._before is not None:
            return
        settings = termios.tcgetattr(self._fd)
        raw = [*settings[:_CHARACTERS], list(settings[_CHARACTERS])]
        raw[_INPUT] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
        raw[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        raw[_CHARACTERS][termios.VMIN], raw[_CHARACTERS][termios.VTIME] = 1, 0
        self._before = settings
        termios.tcsetattr(self._fd, termios.TCSAFLUSH, raw)
        self._watch_size()

    def give_back(self) -> None:
        """Put it back as it was."""
        before, self._before = self._before, None
        if before is None:
            return
        termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
        ends, self._signals = self._signals, None
        if ends is not None:
            signal.signal(signal.SIGWINCH, self._handler)
            for fd in ends:
                os.close(fd)

    def read(self) -> bytes:
        """What was typed."""
        try:
            return os.read(self._fd, _CHUNK_BYTES)
        except OSError:  # the terminal is gone
            return b""

    def _watch_size(self) -> None:
        ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

        def resized(*_: object) -> None:
            try:
                os.write(ends[1], b".")
            except OSError:  # it is known already
                pass

        try:
            self._handler = signal.signal(signal.SIGWINCH, resized)
            self._signals = ends
        except ValueError:  # not the main thread
            for fd in ends:
                os.close(fd)
