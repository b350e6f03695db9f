"""The file that a worker's recorder writes, and how much of it has been sent. For the agent.

It is in memory: no line has to be written to a disk, and the memory of what has been sent is freed.
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
"""Largest trace of one rank."""
HELD_BYTES = 128 << 20
"""What all traces of a node may hold in its memory until they are sent."""
_CHUNK_BYTES = 192 << 10
_LONGEST_LINE_BYTES = _CHUNK_BYTES << 8
"""Twice what the values of a call take where as many are recorded as can be asked for."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KEEP_SIZE_PUNCH_HOLE = 3
_F_ADD_SEALS, _F_SEAL_SEAL, _F_SEAL_SHRINK = 1033, 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def make_trace_file() -> int:
    """A file for a trace, open for appending: it never gets shorter, so that who has it mapped may write unasked."""
    fd = os.memfd_create("trace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    with suppress(OSError):  # it will not be mapped
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK)
    return fd


class TraceFile:
    """A file that a worker appends lines to while the agent reads them; after `limit_bytes` nothing more is sent.

    Args:
        limit_bytes: see above.
        made: the file, where the worker has made it.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, made: int | None = None) -> None:
        self.fd = make_trace_file() if made is None else made
        """The worker has a duplicate."""
        self.exceeded: tuple[str, int] | None = None
        """Of what there was more than so many bytes, so that the rest is dropped."""
        self._limit = limit_bytes
        self._sent = self._freed = 0
        self._end_sent = False

    def chunks(self, *, ended: bool = False) -> Iterator[bytes]:
        """What has been written since, in whole lines; if its writer has ended, what follows the last newline, too."""
        while self.fd >= 0 and self.exceeded is None:
            chunk, length = self._read(ended)
            if self._sent + length > self._limit:
                self.cut("trace", self._limit)
            elif not length:
                break
            else:
                self._sent += length
                end = self._sent // _PAGE_BYTES * _PAGE_BYTES
                if end > self._freed:
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
        """The memory that it takes."""
        return os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0

    def cut(self, excessive: str, limit_bytes: int) -> None:
        """Drop what has not been sent, and what is still to come: there is too much of something."""
        self.exceeded = self.exceeded or (excessive, limit_bytes)
        self._free()

    def _read(self, ended: bool) -> tuple[bytes, int]:
        """The next lines, few unless one alone is long, and how many bytes of the file they take.

        The compiled recorder copies lines into the mapped file and has room in front of it, which reads as NUL.
        """
        size = _CHUNK_BYTES
        while size <= _LONGEST_LINE_BYTES:
            data = os.pread(self.fd, size, self._sent)
            gap = data.find(b"\0")
            written = data if gap < 0 else data[:gap]
            whole = written.rfind(b"\n") + 1
            if whole:
                return written[:whole], whole
            if len(written) < size:
                # A line whose writer was killed may have room within it.
                return (data.replace(b"\0", b""), len(data)) if ended else (b"", 0)
            size *= 4
        self.cut("one line of its trace", _LONGEST_LINE_BYTES)
        return b"", 0

    def _free(self) -> None:
        """Free all of its memory; who writes goes on, and may have it mapped, so that it keeps its length."""
        if self.held_bytes:
            self._punch(0, (os.fstat(self.fd).st_size // _PAGE_BYTES + 1) * _PAGE_BYTES)

    def _punch(self, begin: int, end: int) -> None:
        """Free memory of the file, which keeps its length."""
        _libc.fallocate(self.fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(end - begin))

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def bound_held(traces: Collection[TraceFile], limit_bytes: int = HELD_BYTES) -> None:
    """Cut the traces that hold the most where all of them together hold too much, because they are not taken."""
    held = {trace: trace.held_bytes for trace in traces}
    while sum(held.values()) > limit_bytes:
        largest = max(held, key=lambda trace: held[trace])
        largest.cut("trace that had not been taken yet", limit_bytes)
        held[largest] = 0
