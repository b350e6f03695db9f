"""The calls and steps of a run as columns of whole numbers, which the page's timeline and list of steps are drawn from.

Times are microseconds. A column named `begin` holds differences to the line before, which compress well; the first
line of a rank counts from 0. Words (operations, source lines, phases) are indices into one list of `names`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.report.lanes import rows_of
from lab.trace.model import Call, Trace
from lab.trace.steps import Step
from lab.trace.traffic import size_of
from lab.words import clip

_ASYNCHRONOUS, _FAILED = 1, 2
_LONGEST_WORDS = 300


class Names:
    """Words, each kept once."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {"": 0}

    def index(self, word: str) -> int:
        """Where the word stands in the list."""
        return self._indices.setdefault(word, len(self._indices))

    def words(self) -> list[str]:
        """The list; the first word is empty."""
        return list(self._indices)


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)


def call_columns(trace: Trace, steps: Iterable[Step], names: Names) -> dict[str, Any]:
    """A line for each call, rank by rank, in the order in which they began.

    `row` counts in the lane of its rank. `dur` is -1 where a call never ended, `wait` (how long it waited for others)
    where one of those never came.
    """
    step_of: dict[tuple[int, int], tuple[int, int]] = {}
    for step in steps:
        waited = step.waited
        for rank, call in step.calls.items():
            wait = microseconds(waited[rank]) if rank in waited else -1
            step_of[call.rank, call.index] = step.number, wait
    keys = ("begin", "dur", "row", "wait", "step", "op", "at", "via", "phase", "bytes", "flags", "bucket", "params")
    columns: dict[str, list[int]] = {key: [] for key in keys}
    counts, errors = [], {}
    number = 0
    for rank in sorted(trace.ranks):
        calls = trace.ranks[rank].calls
        counts.append([rank, len(calls)])
        columns["row"] += rows_of(calls)
        before = 0
        for call in calls:
            begin = microseconds(call.begin)
            columns["begin"].append(begin - before)
            before = begin
            columns["dur"].append(-1 if call.end is None else max(0, microseconds(call.end) - begin))
            step_number, wait = step_of.get((call.rank, call.index), (0, 0))
            columns["step"].append(step_number)
            columns["wait"].append(wait)
            columns["op"].append(names.index(call.op))
            columns["at"].append(names.index(call.source))
            columns["via"].append(names.index(call.via))
            columns["phase"].append(names.index(call.phase))
            columns["bytes"].append(call.bytes)
            columns["flags"].append(_flags(call))
            columns["bucket"].append(-1 if call.bucket is None else call.bucket)
            columns["params"].append(names.index(_parameters(call)))
            if call.error:
                errors[number] = call.error
            number += 1
    return {"ranks": counts, "errors": errors, **columns}


def _flags(call: Call) -> int:
    return (_ASYNCHRONOUS if call.asynchronous else 0) | (_FAILED if call.error else 0)


def _parameters(call: Call) -> str:
    return clip(", ".join(call.parameters), _LONGEST_WORDS)


def step_columns(steps: Iterable[Step], names: Names) -> dict[str, Any]:
    """A line for each step; `ready` and `end` count from its beginning and are -1 where that never came.

    `last` is the rank that the others had to wait for, and `ready` when it entered.
    """
    columns: dict[str, list[int]] = {
        key: [] for key in ("begin", "ready", "end", "last", "op", "group", "seq", "from", "to", "state", "bytes")
    }
    missing: dict[int, list[int]] = {}
    before = 0
    for step in steps:
        began = step.begin
        begin = microseconds(began)
        columns["begin"].append(begin - before)
        before = begin
        pacer = step.pacer
        columns["ready"].append(_after(pacer.begin if pacer else None, began))
        columns["end"].append(_after(step.end, began))
        columns["last"].append(pacer.rank if pacer else -1)
        columns["op"].append(names.index(step.op))
        columns["group"].append(names.index("" if step.group.label == "default" else step.group.label))
        columns["seq"].append(_or_none(step.seq))
        columns["from"].append(_or_none(step.source))
        columns["to"].append(_or_none(step.destination))
        columns["state"].append(names.index(step.state))
        columns["bytes"].append(size_of(step))
        if step.missing:
            missing[step.number] = list(step.missing)
    return {"missing": missing, **columns}


def _after(moment: float | None, begin: float) -> int:
    return -1 if moment is None else max(0, microseconds(moment - begin))


def _or_none(number: int | None) -> int:
    return -1 if number is None else number


def mark_columns(trace: Trace, names: Names) -> dict[str, list[int]]:
    """A line for each phase of each rank, outer ones before those inside; one that never ended lasts to the end."""
    columns: dict[str, list[int]] = {key: [] for key in ("rank", "begin", "dur", "name")}
    for rank in sorted(trace.ranks):
        before = 0
        for mark in trace.ranks[rank].marks:
            begin = microseconds(mark.begin)
            end = trace.ranks[rank].last if mark.end is None else mark.end
            columns["rank"].append(rank)
            columns["begin"].append(begin - before)
            before = begin
            columns["dur"].append(max(0, microseconds(end) - begin))
            columns["name"].append(names.index(mark.name))
    return columns
