"""The file that a worker's recorder writes, and what of it has been passed on. For the agent."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

LIMIT_BYTES = 256 * 1024 * 1024
"""Largest trace of one rank."""
_CHUNK_BYTES = 192 * 1024


def too_large(limit_bytes: int) -> str:
    """Why a trace ends before the script does."""
    return f"the trace is larger than {limit_bytes >> 20} MiB"


class TraceFile:
    """A file that a worker appends lines to while the agent reads them.

    Args:
        path: where to make it.
        owner: user and group that it belongs to.
        limit_bytes: after so many bytes no more is passed on.
    """

    def __init__(self, path: str, owner: tuple[int, int], limit_bytes: int = LIMIT_BYTES) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        """Open for reading and appending; the worker gets a duplicate."""
        if os.geteuid() == 0:
            os.fchown(self.fd, *owner)
        self._limit = limit_bytes
        self._passed_on = 0
        self._full = False

    def chunks(self, *, ended: bool = False) -> Iterator[bytes]:
        """What has been written since, in pieces of whole lines.

        Args:
            ended: whether nobody writes any more: then what follows the last newline is passed on, too.
        """
        while self.fd >= 0:
            if self._full:
                os.ftruncate(self.fd, 0)  # the worker goes on writing; it shall not fill the disk
                return
            chunk, length = self._read(ended)
            if not length:
                return
            if self._passed_on + length > self._limit:
                self._full = True
                yield self._last_line()
                continue
            self._passed_on += length
            if chunk:
                yield chunk

    def _read(self, ended: bool) -> tuple[bytes, int]:
        """The next lines, a piece of a few hundred kilobytes at most, unless one line alone is longer.

        A recorder that copies its lines into the mapped file has room in front of it, which reads as NUL.

        Returns:
            The lines, and how many bytes of the file they take.
        """
        size = _CHUNK_BYTES
        while True:
            found = os.pread(self.fd, size, self._passed_on)
            room = found.find(b"\0")
            written = found if room < 0 else found[:room]
            whole = written.rfind(b"\n") + 1
            if whole:
                return written[:whole], whole
            if len(written) < size:
                # A line whose writer was killed may have room within it.
                return (found.replace(b"\0", b""), len(found)) if ended else (b"", 0)
            size *= 4

    def _last_line(self) -> bytes:
        line = {"k": "cut", "t": time.monotonic_ns(), "why": too_large(self._limit)}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
