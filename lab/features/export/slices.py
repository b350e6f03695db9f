"""Slices of time on tracks: on each, they lie inside each other or do not touch, as viewers of timelines want it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from lab.report.lanes import lay_rows
from lab.trace.model import Call


@dataclass(slots=True)
class Slice:
    """Something that a rank did for a while. Times are nanoseconds from the first line of the run."""

    kind: str
    """`phase` of a training step; `collective`, `message`; in these two, `wait` for another rank, and `ready` after;
    `note` and `output`, which have no length."""
    name: str
    begin: int
    end: int
    """Where it never ended: the last line of the rank."""
    details: dict[str, Any] = field(default_factory=dict)
    call: Call | None = None
    leaving: list[int] = field(default_factory=list)
    """Numbers of the arrows that go out from its beginning."""
    arriving: list[int] = field(default_factory=list)
    """Numbers of the arrows that come in at its beginning."""


def lay_out(marks: list[Slice], calls: list[Slice]) -> list[list[Slice]]:
    """The tracks of a rank: first its own, with all phases and the calls that fit into them, then as many as it takes.

    Args:
        marks: phases, in the order in which they begin, each inside the one around it or apart from it.
        calls: in the order in which they begin.
    """
    phases = _Phases(marks)
    spans = ((call.begin, max(call.end, call.begin + 1)) for call in calls)
    rows = lay_rows(spans, first_takes=lambda index: phases.hold(calls[index]))
    lanes: list[list[Slice]] = [[] for _ in range(max(rows, default=0) + 1)]
    for call, row in zip(calls, rows, strict=True):
        lanes[row].append(call)
    lanes[0] = sorted([*marks, *lanes[0]], key=lambda one: (one.begin, -one.end, one.call is not None))
    return lanes


class _Phases:
    """The phases of a rank, in the order in which they begin."""

    def __init__(self, marks: list[Slice]) -> None:
        self.marks = marks
        self.begins = [mark.begin for mark in marks]
        self.outermost = []
        """Of each phase, whether it lies in no other."""
        over = -1
        for mark in marks:
            self.outermost.append(mark.begin >= over)
            over = max(over, mark.end)

    def hold(self, call: Slice) -> bool:
        """Whether a call is inside every phase that it shares a moment with."""
        for index in range(bisect_right(self.begins, call.end) - 1, -1, -1):
            mark = self.marks[index]
            if _touch(call, mark):
                if not (mark.begin <= call.begin and call.end <= mark.end):
                    return False
            elif self.outermost[index]:
                return True  # all before it ended before it
        return True


def _touch(one: Slice, other: Slice) -> bool:
    return one.begin <= other.end and other.begin <= one.end
