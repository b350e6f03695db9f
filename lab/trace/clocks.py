"""Brings the clocks of the ranks of a run together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.record.events import Clock
from lab.record.read import Record
from lab.record.started import ranks_of
from lab.trace.fields import number

_SHARED_CLOCK_ERROR_S = 1e-6
"""Two reads of one clock by two processes."""


class Clocks(NamedTuple):
    """How the times of the ranks are compared."""

    offsets: dict[int, int]
    """By rank: nanoseconds to be added to its own clock to have the time since the run's first line."""
    origin_s: float
    """Unix time of the first line."""
    error_s: float


def align(starts: Mapping[int, Mapping[str, Any]], record: Record) -> Clocks:
    """The clocks of ranks, from the first lines of their traces.

    Ranks whose nodes share a kernel share its monotonic clock: one of them tells the wall time for all. Other kernels
    are brought to the lab's clock by what the record says of them.
    """
    if not starts:
        return Clocks({}, 0.0, 0.0)
    clocks = {event.node: (event.offset_s, event.error_s) for event in record.events() if isinstance(event, Clock)}
    nodes, kernels = ranks_of(record), {rank: str(start.get("boot", rank)) for rank, start in starts.items()}
    walls: dict[str, int] = {}
    """By kernel: nanoseconds to be added to its clock to have Unix time."""
    errors = [_SHARED_CLOCK_ERROR_S]
    for rank, start in starts.items():
        if kernels[rank] not in walls:
            offset, error = clocks.get(nodes.get(rank, ""), (0.0, 0.0))
            walls[kernels[rank]] = number(start, "wall") - number(start, "t") - int(offset * 1e9)
            errors.append(error)
    origin = min(walls[kernels[rank]] + number(start, "t") for rank, start in starts.items())
    offsets = {rank: walls[kernels[rank]] - origin for rank in starts}
    return Clocks(offsets, origin / 1e9, sum(sorted(errors)[-2:]) if len(walls) > 1 else _SHARED_CLOCK_ERROR_S)
