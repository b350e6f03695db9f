"""What a rank had of the cores of its machine, as its trace tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.trace.model import RankTrace
from lab.trace.read import RankReader, read_number

_EXTRA = "cores"


@dataclass(slots=True)
class Ran:
    """What threads had of the cores between the first and the last time that their rank looked."""

    ran_s: float = 0.0
    """How long they ran, added up."""
    queued_s: float = 0.0
    """How long they waited for a core, though they had something to do."""
    begin: float = 0.0
    """When their rank first looked, seconds."""
    end: float = 0.0
    """When it last did; the same where it looked only once."""
    _first: tuple[int, int] | None = None

    @property
    def wanted_s(self) -> float:
        """How long they ran or waited for a core."""
        return self.ran_s + self.queued_s

    def add(self, time: float, ran: int, queued: int) -> None:
        """Add how long they had run and waited for a core until now, nanoseconds."""
        if self._first is None:
            self._first, self.begin, self.end = (ran, queued), time, time
        elif ran >= self._first[0] and queued >= self._first[1]:
            self.ran_s, self.queued_s = (ran - self._first[0]) / 1e9, (queued - self._first[1]) / 1e9
            self.end = time


@dataclass(slots=True)
class Cores:
    """Cores of a machine, and what one rank had of them."""

    kernel: str = ""
    """Identity of the kernel that the rank ran under: ranks of one kernel share a machine."""
    count: int = 0
    """On which it might run; 0 where its trace does not tell."""
    own: Ran = field(default_factory=Ran)
    """Of the thread that trains."""
    beside: Ran = field(default_factory=Ran)
    """Of the other threads of its process, which carry its calls."""


def read_cores(reader: RankReader) -> None:
    """Read what the first line of a trace and its `cpu` lines say; older ones tell only of the thread that trains."""
    cores = reader.result.extra[_EXTRA] = Cores()
    start = reader.actions["start"]

    def read_start(line: Mapping[str, Any]) -> None:
        start(line)
        cores.kernel, cores.count = str(line.get("boot", "")).partition(" ")[0], read_number(line, "cores")

    def read_line(line: Mapping[str, Any]) -> None:
        time = reader.seconds(line)
        cores.own.add(time, read_number(line, "ran"), read_number(line, "queued"))
        cores.beside.add(time, read_number(line, "beside"), read_number(line, "beside_queued"))

    reader.actions |= {"start": read_start, "cpu": read_line}


def cores_of(rank: RankTrace) -> Cores:
    """What a rank had of its machine."""
    return rank.extra.get(_EXTRA) or Cores()
