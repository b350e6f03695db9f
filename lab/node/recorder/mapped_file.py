"""The file that the Python recorder appends lines to: they are copied into pages of the file itself.

The kernel keeps those whatever becomes of this process, and no call of it stands between two lines. `native_file.hpp`
does the same for the compiled recorder.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 256 * 1024
_MADV_POPULATE_WRITE = 23
_ROOM_FOR_CUT = 256


class MappedFile:
    """Where lines are appended to a mapped file.

    Args:
        fd: open for reading and appending; nobody else appends.
        write: appends a line by other means; used where the file cannot be mapped.
        limit_bytes: the largest file.
        on_full: called when it would become larger; the line that was too much is dropped.
    """

    def __init__(
        self, fd: int, write: Callable[[bytes], object], limit_bytes: int, on_full: Callable[[], None]
    ) -> None:
        self._fd, self._write, self._limit, self._on_full = fd, write, limit_bytes, on_full
        self._lock = threading.RLock()  # a signal handler may record something in the middle of a line
        self._window: mmap.mmap | None = None
        self._begin = 0
        """The window begins at this byte of the file,"""
        self._used = 0
        """so many bytes of it are lines,"""
        self._end = 0
        """and so many can be."""
        facts = os.fstat(fd)
        self._mappable = stat.S_ISREG(facts.st_mode)
        self._size = facts.st_size

    def append(self, line: bytes) -> None:
        """Append one whole line."""
        lock = self._lock
        lock.acquire()  # `with` takes twice as long
        try:
            begin = self._used
            end = begin + len(line)
            if end <= self._end:
                self._used = end
                self._window[begin:end] = line  # type: ignore[index]
            elif self._mappable:
                self._append_to_next(line)
            else:
                self._write(line)
        finally:
            lock.release()

    def release(self) -> None:
        """Give back the room that was not used; what is appended from now on is written."""
        with self._lock:
            if self._mappable:
                self._mappable = False
                self._leave()
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)

    def _append_to_next(self, line: bytes) -> None:
        self._leave()
        if self._size + len(line) + _ROOM_FOR_CUT > self._limit:
            self._on_full()
            return
        try:
            self._map(len(line))
        except (OSError, ValueError, AttributeError):  # the disk is full, or its file system or the system cannot
            self.release()
        self.append(line)

    def _map(self, size: int) -> None:
        begin = self._size // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        length = -(-(self._size - begin + size) // _CHUNK_BYTES) * _CHUNK_BYTES
        _allocate(self._fd, begin, length)
        self._window = mmap.mmap(self._fd, length, offset=begin)
        with suppress(OSError):  # Linux before 5.14 does not know it
            self._window.madvise(_MADV_POPULATE_WRITE)
        self._begin, self._used = begin, self._size - begin
        self._end = min(length, self._limit - _ROOM_FOR_CUT - begin)

    def _leave(self) -> None:
        if self._window is not None:
            self._size = self._begin + self._used
            self._window.close()
        self._window, self._used, self._end = None, 0, 0


def _allocate(fd: int, begin: int, length: int) -> None:
    """Reserve room on the disk, so that a full one is an error here and never a signal when a line is copied.

    Raises:
        OSError: there is none, or the file system cannot say.
        AttributeError: the system has no such call. That of the standard library may write zeros instead.
    """
    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while allocate(fd, 0, begin, length):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
