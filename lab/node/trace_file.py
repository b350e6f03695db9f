"""The file that a worker's recorder writes, and how much of it the agent has sent.

It is in memory: no line has to go to a disk, and the memory of sent lines is freed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

LIMIT_BYTES = 256 << 20
"""Limit for the trace of one rank."""
HELD_BYTES = 128 << 20
"""Limit for the memory of all unsent traces of a node."""
_CHUNK_BYTES = 192 << 10
_LONGEST_LINE_BYTES = _CHUNK_BYTES << 8
"""Twice the largest line for the values of a call with the largest limit that users can set."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KEEP_SIZE_PUNCH_HOLE = 3
_F_ADD_SEALS, _F_SEAL_SEAL, _F_SEAL_SHRINK = 1033, 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def make_trace_file() -> int:
    """Return a file for a trace, open for appending; a recorder may map it, because it never shrinks."""
    fd = os.memfd_create("trace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    with suppress(OSError):  # it will not be mapped
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK)
    return fd


class TraceFile:
    """A file to which a worker appends lines while the agent reads them; after `limit_bytes` nothing more is sent.

    Args:
        limit_bytes: limit for the file.
        made: the file, if the worker has made it.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, made: int | None = None) -> None:
        self.fd = make_trace_file() if made is None else made
        """The worker has a duplicate."""
        self.exceeded: tuple[str, int] | None = None
        """What exceeded a limit, and the limit in bytes; the rest is dropped."""
        self._limit = limit_bytes
        self._sent = self._freed = 0
        self._end_sent = False

    def chunks(self, *, ended: bool = False) -> Iterator[bytes]:
        """Yield new complete lines; if the writer has ended, also what follows the last newline."""
        while self.fd >= 0 and self.exceeded is None:
            chunk, length = self._read(ended)
            if self._sent + length > self._limit:
                self.cut("trace", self._limit)
            elif not length:
                break
            else:
                self._sent += length
                if (end := self._sent // _PAGE_BYTES * _PAGE_BYTES) > self._freed:
                    self._punch(self._freed, end)
                    self._freed = end
                if chunk:
                    yield chunk
        if self.exceeded is not None:
            self._free()
            if not self._end_sent:
                self._end_sent = True
                excessive, limit_bytes = self.exceeded
                why = f"there was more than {limit_bytes >> 20} MiB of {excessive}"
                if excessive == "trace":
                    why = f"the trace is larger than {limit_bytes >> 20} MiB"
                line = {"k": "cut", "t": time.monotonic_ns(), "why": why}
                yield json.dumps(line, separators=(",", ":")).encode() + b"\n"

    @property
    def held_bytes(self) -> int:
        """Memory of the file."""
        return os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0

    def cut(self, excessive: str, limit_bytes: int) -> None:
        """Drop what has not been sent, and everything that follows, because something exceeds a limit."""
        self.exceeded = self.exceeded or (excessive, limit_bytes)
        self._free()

    def _read(self, ended: bool) -> tuple[bytes, int]:
        """Return the next lines, few unless one alone is long, and their length in the file.

        The compiled recorder copies lines into the mapped file, and leaves a gap of NUL bytes in front of it.
        """
        size = _CHUNK_BYTES
        while size <= _LONGEST_LINE_BYTES:
            data = os.pread(self.fd, size, self._sent)
            gap = data.find(b"\0")
            written = data if gap < 0 else data[:gap]
            if whole := written.rfind(b"\n") + 1:
                return written[:whole], whole
            if len(written) < size:
                # A line whose writer was killed may have room within it.
                return (data.replace(b"\0", b""), len(data)) if ended else (b"", 0)
            size *= 4
        self.cut("one line of its trace", _LONGEST_LINE_BYTES)
        return b"", 0

    def _free(self) -> None:
        """Free all of its memory; the file keeps its length, because its writer may have it mapped."""
        if self.held_bytes:
            self._punch(0, (os.fstat(self.fd).st_size // _PAGE_BYTES + 1) * _PAGE_BYTES)

    def _punch(self, begin: int, end: int) -> None:
        """Free a part of the file's memory; the file keeps its length."""
        _libc.fallocate(self.fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(end - begin))

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def bound_held(traces: Collection[TraceFile], limit_bytes: int = HELD_BYTES) -> None:
    """Cut the traces that use the most memory until all together are within the limit."""
    held = {trace: trace.held_bytes for trace in traces}
    while sum(held.values()) > limit_bytes:
        largest = max(held, key=lambda trace: held[trace])
        largest.cut("trace that its agent had not sent yet", limit_bytes)
        held[largest] = 0
