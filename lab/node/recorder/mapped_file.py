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
        on_window: told the quickest way to append a line from now on, which raises ValueError where it cannot:
            `append` can, always.
    """

    def __init__(
        self,
        fd: int,
        write: Callable[[bytes], object],
        limit_bytes: int,
        on_full: Callable[[], None],
        on_window: Callable[[Callable[[bytes], object]], None],
    ) -> None:
        self._fd, self._write, self._limit, self._on_full, self._on_window = fd, write, limit_bytes, on_full, on_window
        self._lock = threading.RLock()  # a signal handler may record something in the middle of a line
        self._window = mmap.mmap(-1, 1)
        """The part of the file that is mapped. Its `write` copies a line and moves on, in one go for all threads; where
        there is no more room it raises ValueError, and so it does when it is closed."""
        self._window.close()
        self._mapped = False
        """Whether it is open."""
        self._begin = 0
        """The window begins at this byte of the file,"""
        facts = os.fstat(fd)
        self._size = facts.st_size
        """so many bytes of it were lines when the window was mapped."""
        self._mappable = stat.S_ISREG(facts.st_mode)

    def append(self, line: bytes) -> None:
        """Append one whole line."""
        try:
            self._window.write(line)
        except ValueError:
            self._append_to_next(line)

    def release(self) -> None:
        """Give back the room that was not used; what is appended from now on is written."""
        with self._lock:
            if self._mappable:
                self._leave()
                self._mappable = False
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)

    def _append_to_next(self, line: bytes) -> None:
        with self._lock:
            with suppress(ValueError):
                self._window.write(line)  # another thread was here first
                return
            if not self._mappable:
                self._write(line)
                return
            self._leave()
            if self._size + len(line) + _ROOM_FOR_CUT > self._limit:
                self._on_full()
                return
            try:
                self._map(len(line))
            except (
                OSError,
                ValueError,
                AttributeError,
            ):  # there is no room left, or the file's or the operating system cannot
                self.release()
            self._append_to_next(line)

    def _map(self, size: int) -> None:
        begin = self._size // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        length = -(-(self._size - begin + size) // _CHUNK_BYTES) * _CHUNK_BYTES
        length = min(length, self._limit - _ROOM_FOR_CUT - begin)
        _allocate(self._fd, begin, length)
        window = mmap.mmap(self._fd, length, offset=begin)
        with suppress(OSError):  # Linux before 5.14 does not know it
            window.madvise(_MADV_POPULATE_WRITE)
        window.seek(self._size - begin)
        if self._mapped:  # a signal handler was here first
            window.close()
        else:
            self._begin, self._window, self._mapped = begin, window, True
            self._on_window(window.write)

    def _leave(self) -> None:
        """Find out where the lines end, and unmap the window."""
        if self._mapped:
            window, self._mapped = self._window, False
            self._on_window(self.append)
            before = window.tell()
            window.seek(0, os.SEEK_END)  # from here on nobody writes; somebody may have just before
            self._size = self._begin + max(before, window.rfind(b"\n", before) + 1)
            window.close()


def _allocate(fd: int, begin: int, length: int) -> None:
    """Reserve room, so that a lack of it is an error here and never a signal when a line is copied.

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
