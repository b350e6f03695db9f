"""How many files a process may have open: its soft limit is raised as far as is needed, and allowed."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_open_files(count: int) -> int:
    """Let this process, and those that it starts, have at least so many files open; returns how many they may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the kernel allows no process so many
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
