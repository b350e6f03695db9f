"""How much memory processes hold."""

from __future__ import annotations

import os
from contextlib import suppress

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def held_bytes(pids: list[int]) -> dict[int, int]:
    """Memory that each process holds, shared pages divided among those who share them (PSS)."""
    sizes = {}
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
            sizes[pid] = next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    return sizes


def sizes_over(limit_bytes: int, pids: list[int]) -> dict[int, int]:
    """Memory that each process holds, where together they hold as much as the limit; otherwise empty."""
    resident = 0  # cheaper to ask for, and never less
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/statm") as file:
            resident += int(file.read().split()[1]) * _PAGE_BYTES
    sizes = held_bytes(pids) if resident >= limit_bytes else {}
    return sizes if sum(sizes.values()) >= limit_bytes else {}
