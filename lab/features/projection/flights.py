"""When the data of each call was on its way, rank by rank.

Not before the last rank had come, nor while earlier calls kept the threads of its group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lab.trace.steps import Step
from lab.trace.timing import Span

AT_ONCE = {"gloo": 2}
"""Collectives of one group that a library carries at once (gloo has two threads for a group); of others, one."""


@dataclass(frozen=True, slots=True)
class Flight:
    """The data of one collective or message."""

    step: Step
    begin: float
    ends: Mapping[int, float]
    """By rank; of a message, the receiver's for both, as a send is told to be over when somebody looks at it."""
    late: bool
    """Whether the message was there already, perhaps for long, when it was asked for."""

    @property
    def spans(self) -> list[Span]:
        """By rank that took part, while its data was on its way."""
        calls = self.step.calls
        return [(max(self.begin, calls[rank].begin), end) for rank, end in self.ends.items()]


def flights_of(steps: Iterable[Step], library: str) -> list[Flight]:
    """Of all that were done, in the order in which they could begin."""
    done = [step for step in steps if step.state == "completed" and step.ready is not None and len(step.expected) > 1]
    free: dict[tuple[str, int], list[float]] = {}
    found = []
    for step in sorted(done, key=lambda step: step.ready or 0.0):
        receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
        ends = {rank: end for rank, call in step.calls.items() if (end := (receiver or call).end) is not None}
        lane, at_once = lane_of(step), 1 if step.message else AT_ONCE.get(library, 1)
        threads = {rank: free.setdefault((lane, rank), [-math.inf] * at_once) for rank in ends}
        ready = step.ready or 0.0
        begin = max([ready, *(min(of_rank) for of_rank in threads.values())])
        for rank, of_rank in threads.items():
            of_rank[of_rank.index(min(of_rank))] = ends[rank]
        found.append(Flight(step, begin, ends, receiver is not None and receiver.begin == ready))
    return found


def lane_of(step: Step) -> str:
    """What goes in order: the collectives of a group, the messages from one rank to another with one tag."""
    if not step.message:
        return step.group.name
    tags = {call.tag for call in step.calls.values()}
    return f"{step.source}>{step.destination} {min(tags)} {step.group.name}"
