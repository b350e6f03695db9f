"""The share of a machine's cores that a rank had, as its trace shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.trace.model import RankTrace
from lab.trace.read import RankReader, read_number

_EXTRA = "cores"


@dataclass(slots=True)
class ThreadTime:
    """The core time of threads between the first and the last measurement of their rank."""

    ran_s: float = 0.0
    """Seconds that they ran, in total."""
    queued_s: float = 0.0
    """Seconds that they waited for a core although they could run."""
    begin: float = 0.0
    """Time of the first measurement, in seconds."""
    end: float = 0.0
    """Time of the last measurement; equal to `begin` if there is only one."""
    _first: tuple[int, int] | None = None

    @property
    def wanted_s(self) -> float:
        """Seconds that they ran or waited for a core."""
        return self.ran_s + self.queued_s

    def add(self, time: float, ran: int, queued: int) -> None:
        """Add a measurement: how long they have run and waited for a core so far, in nanoseconds."""
        if self._first is None:
            self._first, self.begin, self.end = (ran, queued), time, time
        elif ran >= self._first[0] and queued >= self._first[1]:
            self.ran_s, self.queued_s = (ran - self._first[0]) / 1e9, (queued - self._first[1]) / 1e9
            self.end = time


@dataclass(slots=True)
class Cores:
    """Cores of a machine, and the share of one rank."""

    kernel: str = ""
    """Identity of the kernel that the rank ran under: ranks of one kernel share a machine."""
    count: int = 0
    """Cores on which the rank may run; 0 if its trace does not say."""
    own: ThreadTime = field(default_factory=ThreadTime)
    """Of the thread that trains."""
    other_threads: ThreadTime = field(default_factory=ThreadTime)
    """Of the other threads of its process, which carry its calls."""


def read_cores(reader: RankReader) -> None:
    """Read the first line and the `cpu` lines of a trace; older traces cover only the thread that trains."""
    cores = reader.result.extra[_EXTRA] = Cores()
    start = reader.actions["start"]

    def read_start(line: Mapping[str, Any]) -> None:
        start(line)
        cores.kernel, cores.count = str(line.get("boot", "")).partition(" ")[0], read_number(line, "cores")

    def read_line(line: Mapping[str, Any]) -> None:
        time = reader.seconds(line)
        cores.own.add(time, read_number(line, "ran"), read_number(line, "queued"))
        cores.other_threads.add(time, read_number(line, "beside"), read_number(line, "beside_queued"))

    reader.actions |= {"start": read_start, "cpu": read_line}


def cores_of(rank: RankTrace) -> Cores:
    """Return the share of its machine that a rank had."""
    return rank.extra.get(_EXTRA) or Cores()
