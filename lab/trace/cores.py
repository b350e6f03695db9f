"""What a rank had of the cores of its machine, as its trace tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Cores:
    """Cores of a machine, and what one rank had of them."""

    kernel: str = ""
    """Identity of the kernel that the rank ran under: ranks of one kernel share a machine."""
    count: int = 0
    """On which it might run; 0 where its trace does not tell."""
    ran_s: float = 0.0
    """How long the thread that trains ran, between the first and the last time that it looked."""
    queued_s: float = 0.0
    """How long it waited for a core in that time, though it had something to do."""
    _first: tuple[int, int] | None = None

    def start(self, clock: str, count: int) -> None:
        """Take what the first line of a trace says: whose clock it has, and how many cores there are."""
        self.kernel, self.count = clock.partition(" ")[0], count

    def look(self, ran: int, queued: int) -> None:
        """Take how long its thread had run and waited for a core until now, nanoseconds."""
        if self._first is None:
            self._first = ran, queued
        elif ran >= self._first[0] and queued >= self._first[1]:
            self.ran_s, self.queued_s = (ran - self._first[0]) / 1e9, (queued - self._first[1]) / 1e9
