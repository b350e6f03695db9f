"""Standard output and standard error of a verb, where nobody may read them, or where the disk is full.

A verb that does something goes on to its end when its output cannot be written: a cluster is removed and a run is
judged all the same. What only shows something ends then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDS_WITH_READER = ("logs", "watch")
"""Verbs that may print for ever."""


class OutputLost(OSError):
    """Standard output cannot be written, for another reason than that nobody reads it."""


class Output:
    """A stream, text or binary, whose first error is kept.

    Args:
        stream: where the text goes.
        lose: called with an error; it may raise another one.
    """

    def __init__(self, stream: Any, lose: Callable[[OSError], object]) -> None:
        self._stream = stream
        self._lose = lose

    def write(self, data: Any) -> int:
        """Write, or drop it where that cannot be done."""
        try:
            return int(self._stream.write(data))
        except OSError as error:
            self._lose(error)
            return len(data)

    def flush(self) -> None:
        """The same for what was held back."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    @property
    def buffer(self) -> Output:
        """The binary stream below."""
        return Output(self._stream.buffer, self._lose)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded_output(verb: str) -> Iterator[list[OSError]]:
    """Guard the standard streams while a verb runs; gives the errors of standard output that are to be reported."""
    lost: list[OSError] = []
    out, err = sys.stdout, sys.stderr

    def lose_output(error: OSError) -> None:
        _drop_rest(out)
        if verb in ENDS_WITH_READER:
            raise error if isinstance(error, BrokenPipeError) else OutputLost(error.errno, error.strerror)
        if not isinstance(error, BrokenPipeError):  # whoever reads no more has seen enough
            lost.append(error)

    guarded: Any = Output(out, lose_output), Output(err, lambda _: _drop_rest(err))
    sys.stdout, sys.stderr = guarded
    try:
        yield lost
        guarded[0].flush()
    finally:
        if sys.stdout is guarded[0]:
            sys.stdout = out
        if sys.stderr is guarded[1]:
            sys.stderr = err


def _drop_rest(stream: Any) -> None:
    """Have what a stream holds back, and all that follows, go nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # it is no file
        pass
