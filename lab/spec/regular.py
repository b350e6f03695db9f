"""Read the beginning of a file that may be anything: a pipe, a device, or a link to one."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_head(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a regular file; none of anything else, or where it cannot be read. It never waits."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            return file.read(most_bytes) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""
