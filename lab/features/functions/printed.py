"""What ranks print while a function runs, for whoever called it."""

from __future__ import annotations

import sys
import threading

from lab.report.harmless import harmless
from lab.run.observe import Silence

_MOST_BYTES = 1 << 20
"""Of one call; the record has all of it."""


class Printed(Silence):
    """Collects it in the thread that drives the run, and prints it in the one that called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[int, int], bytearray] = {}
        self._bytes = 0
        self._ignored: set[int] = set()

    def ignore(self, rank: int) -> None:
        """What it prints from now on is told otherwise: the traceback of what it raised."""
        self._ignored.add(rank)

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Keep what a rank printed."""
        if rank in self._ignored:
            return
        with self._lock:
            data = data[: max(0, _MOST_BYTES - self._bytes)]
            self._bytes += len(data)
            self._found.setdefault((rank, stream), bytearray()).extend(data)

    def show(self) -> None:
        """Print it, rank by rank."""
        with self._lock:
            found, self._found, self._bytes = self._found, {}, 0
        for (rank, stream), data in sorted(found.items()):
            for line in data.decode("utf-8", "replace").splitlines():
                print(f"rank {rank}: {harmless(line)}", file=sys.stderr if stream == 2 else sys.stdout)
