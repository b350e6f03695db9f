"""The trace of this process: a file to which whole lines are appended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

FORMAT = 1


def _nowhere(line: bytes) -> object:
    return None


def _nothing() -> None:
    return None


class Journal:
    """Where lines go. Off until it is opened, and in every fork of the process that opened it."""

    def __init__(self) -> None:
        self.on = False
        """Whether lines are kept."""
        self.values = 0
        """At most so many elements of one side of a call are kept as they are."""
        self.at_end: Callable[[], None] = _nothing
        """Called when the recording ends in this process."""
        self.put: Callable[[bytes], object] = _nowhere
        """Appends one whole line, whether lines are kept or not. Never raises: a lack of room ends the recording."""
        self.copy: Callable[[bytes], object] = _nowhere
        """The same, as quickly as can be; raises ValueError where there is no room for the line: `put` makes some."""

    def open(self, put: Callable[[bytes], object], *, rank: int, recorder: str, torch: str, values: int) -> None:
        """Begin with a `start` line.

        Args:
            put: see `Journal.put`.
            rank: of this worker.
            recorder: `compiled` or `python`.
            torch: its version.
            values: see `Journal.values`.
        """
        self.put = self.copy = put
        self.values, self.on = values, True
        facts = {"format": FORMAT, "rank": rank, "pid": os.getpid()}
        now, wall = time.monotonic_ns(), time.time_ns()
        rest = {"wall": wall, "boot": boot_id(), "recorder": recorder, "torch": torch, "values": values}
        self.write(_line("start", now, {**facts, **rest}))

    def write(self, line: bytes) -> None:
        """Append one line."""
        if self.on:
            self.put(line)

    def add(self, kind: str, **facts: Any) -> None:
        """Append a line of this kind; `t` is now unless given."""
        if self.on:
            self.write(_line(kind, facts.pop("t", None) or time.monotonic_ns(), facts))

    def cut(self, why: str) -> None:
        """End the recording before the script's end."""
        self._end("cut", why=why)

    def close(self) -> None:
        """End the recording at the script's end."""
        self._end("stop")

    def _end(self, kind: str, **facts: Any) -> None:
        if self.on:
            self.at_end()
            self.add(kind, **facts)
            self.on = False

    def forget(self) -> None:
        """Stop without a word: there is no room left, or this process is a fork of the one that is recorded."""
        self.on = False


def boot_id() -> str:
    """Names the running kernel; processes for which it is the same share a monotonic clock. Empty where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def file_writer(fd: int, failed: Callable[[], None]) -> Callable[[bytes], None]:
    """A writer of lines to a file.

    Args:
        fd: open for appending.
        failed: called when there is no room left.
    """

    def append(line: bytes) -> None:
        try:
            written = os.write(fd, line)
            if written < len(line):  # half a line is none
                os.ftruncate(fd, os.fstat(fd).st_size - written)
                failed()
        except OSError:
            failed()

    return append


def _line(kind: str, now_ns: int, facts: dict[str, Any]) -> bytes:
    text = json.dumps({"k": kind, "t": now_ns, **facts}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


journal = Journal()
"""That of this process."""
os.register_at_fork(after_in_child=journal.forget)
