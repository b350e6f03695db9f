"""The bars of a still timeline: which calls share one, and on which row of their rank's lane they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.features.html.timeline.axis import Axis
from lab.report.lanes import rows_of
from lab.trace.model import Call, Mark, RankTrace

NARROW = 2.0
"""Least width of a bar, in pixels; narrower ones that touch are drawn as one."""
_SETTING_UP = frozenset({"DDP()"})
"""Phases whose length says more about imports than about the run: the axis may be cut in them."""
_HIDDEN_MARKS = frozenset({"init_process_group", "new_group", "destroy_process_group"})


@dataclass(slots=True)
class Bar:
    """One call, or several that are too short to be told apart."""

    calls: list[Call]
    end: float
    """Seconds; where a call never ended, the end of the run."""
    left: float
    """Pixels."""
    right: float


def busy_times(ranks: Sequence[RankTrace], last: float) -> list[tuple[float, float]]:
    """From when to when something happened, in seconds; they may overlap. Calls that never ended last until `last`."""
    calls = [(call.begin, last if call.end is None else call.end) for rank in ranks for call in rank.calls]
    marks = [mark for rank in ranks for mark in shown_marks(rank) if mark.name not in _SETTING_UP]
    return calls + [(mark.begin, mark.end) for mark in marks if mark.end is not None]


def shown_marks(rank: RankTrace) -> list[Mark]:
    """The phases that are drawn."""
    return [mark for mark in rank.marks if mark.name not in _HIDDEN_MARKS]


def make_rows(rank: RankTrace, axis: Axis, last: float) -> list[list[Bar]]:
    """The bars of a rank, row by row; calls that never ended last until `last`, in seconds."""
    numbers = rows_of(rank.calls)
    rows: list[list[Bar]] = [[] for _ in range(max(numbers, default=-1) + 1)]
    for call, number in zip(rank.calls, numbers, strict=True):
        end = max(last if call.end is None else call.end, call.begin)
        left = axis.place(call.begin)
        bar = Bar([call], end, left, max(axis.place(end), left + NARROW))
        former = rows[number][-1] if rows[number] else None
        if former and bar.left < former.right + 0.5 and bar.right - former.left <= 2 * NARROW:
            former.calls.append(call)
            former.end, former.right = max(former.end, end), max(former.right, bar.right)
            continue
        if former:
            bar.left = max(bar.left, min(former.right + 0.5, bar.right - 1))
        rows[number].append(bar)
    return rows
