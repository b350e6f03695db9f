"""The file that a worker's recorder writes, and how much of it has been sent. For the agent.

It is in memory: no line has to be written to a disk, and the memory of what has been sent is freed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import suppress

LIMIT_BYTES = 256 * 1024 * 1024
"""Largest trace of one rank."""
_CHUNK_BYTES = 192 * 1024


class TraceFile:
    """A file that a worker appends lines to while the agent reads them; after `limit_bytes` nothing more is sent."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.fd = os.memfd_create("trace")
        """Open for reading and appending; the worker gets a duplicate."""
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        self._limit = limit_bytes
        self._passed_on = self._given_back = 0
        self._full = False

    def chunks(self, *, ended: bool = False) -> Iterator[bytes]:
        """What has been written since, in whole lines; if its writer has ended, what follows the last newline, too."""
        while self.fd >= 0:
            if self._full:
                os.ftruncate(self.fd, 0)  # the worker goes on writing, and must not fill the memory
                return
            chunk, length = self._read(ended)
            if not length:
                return
            if self._passed_on + length > self._limit:
                self._full = True
                yield self._last_line()
                continue
            self._passed_on += length
            self._give_back()
            if chunk:
                yield chunk

    def _read(self, ended: bool) -> tuple[bytes, int]:
        """The next lines, few unless one alone is long, and how many bytes of the file they take.

        The compiled recorder copies lines into the mapped file and has room in front of it, which reads as NUL.
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

    def _give_back(self) -> None:
        """Free the memory of what has been sent; the file keeps its length."""
        end = self._passed_on // mmap.PAGESIZE * mmap.PAGESIZE
        if end > self._given_back:
            with (
                suppress(OSError, ValueError),
                mmap.mmap(self.fd, end - self._given_back, offset=self._given_back) as pages,
            ):
                pages.madvise(mmap.MADV_REMOVE)
            self._given_back = end

    def _last_line(self) -> bytes:
        why = f"the trace is larger than {self._limit >> 20} MiB"
        line = {"k": "cut", "t": time.monotonic_ns(), "why": why}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
