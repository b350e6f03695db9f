"""New files on this machine, with holes and without following links."""

from __future__ import annotations

import os
from pathlib import Path

from lab.node.files import NEW_FLAGS

_HOLE_BYTES = 1 << 16
_ZEROS = bytes(_HOLE_BYTES)


def file_mode(executable: bool) -> int:
    """Return the mode of a new file, before the umask."""
    return 0o755 if executable else 0o644


class NewFile:
    """A new file, with holes instead of zeros; no link is followed.

    Args:
        path: of the file.
        executable: whether its owner may execute it.

    Raises:
        OSError: it exists already, or cannot be created.
    """

    def __init__(self, path: Path, *, executable: bool = False) -> None:
        self._descriptor = os.open(path, NEW_FLAGS, file_mode(executable))
        self.size_bytes = 0
        """Its length."""
        self.written_bytes = 0
        """Its length without holes."""

    def write(self, data: bytes | memoryview) -> None:
        """Append data."""
        for start in range(0, len(data), _HOLE_BYTES):
            part = memoryview(data)[start : start + _HOLE_BYTES]
            if not part[0] and bytes(part) == _ZEROS[: len(part)]:
                self.size_bytes += len(part)
                continue
            while part:
                written = os.pwrite(self._descriptor, part, self.size_bytes)
                self.size_bytes += written
                self.written_bytes += written
                part = part[written:]

    def close(self) -> None:
        """Close the file, with a hole at its end if necessary.

        Raises:
            OSError: it cannot be written.
        """
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.ftruncate(descriptor, self.size_bytes)
            finally:
                os.close(descriptor)
