"""Keys that are pressed in a terminal, one by one; in a pipe, its letters."""

from __future__ import annotations

import os
import termios
import tty
from types import TracebackType
from typing import IO, Any


class Keys:
    """Gives each key as it is pressed, without Enter, while it is entered; Ctrl-C stays what it is.

    Args:
        stream: of a terminal, or a pipe.
        wanted: whether there is a use for keys; else the terminal is left alone.
    """

    def __init__(self, stream: IO[str], wanted: object = True) -> None:
        self._fd: int | None = None
        self._before: list[Any] | None = None
        if not wanted:
            return
        try:
            self._fd = stream.fileno()
        except (OSError, ValueError, AttributeError):  # closed, or no file
            return
        if os.isatty(self._fd) and os.tcgetpgrp(self._fd) != os.getpgrp():
            self._fd = None  # in the background, reading would stop this process

    def __enter__(self) -> Keys:
        if self._fd is not None and os.isatty(self._fd):
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSADRAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd is not None and self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    @property
    def descriptors(self) -> list[int]:
        """What becomes readable when a key is pressed."""
        return [] if self._fd is None else [self._fd]

    def read(self) -> str:
        """The keys that were pressed; only where there is something to read."""
        if self._fd is None:
            return ""
        try:
            data = os.read(self._fd, 64)
        except OSError:
            data = b""
        if not data:
            self._fd = None
        return data.decode("utf-8", "replace")
