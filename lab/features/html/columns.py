"""The calls, steps and phases of a run as columns, which the page's timeline and list of steps are drawn from.

Times are whole microseconds, -1 where what they tell of never came; `begin` is kept as the difference to the line
before, which compresses well. Words (operations, source lines, phases) are indices into one list of names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

from lab.report.lanes import rows_of
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.trace.timing import blocked_spans, unseen_calls
from lab.trace.traffic import size_of
from lab.words import clip

Line = dict[str, Any]
_LONGEST_WORDS = 300


class Names(dict[str, int]):
    """Words, each kept once, with their indices."""

    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self))


def columns(lines: Iterable[Line], names: Names) -> dict[str, list[Any]]:
    """Lines with the same keys, turned into columns of what they have under each."""
    result: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        for key, value in line.items():
            result[key].append(names[value] if isinstance(value, str) else value)
    result["begin"] = [begin - before for before, begin in pairwise([0, *result["begin"]])]
    return result


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)


def call_lines(trace: Trace, steps: Iterable[Step], path: Collection[tuple[int, int]] = ()) -> Iterator[Line]:
    """A line for each call, rank by rank, in the order in which they began; `wait` is the time it waited for others.

    It held its rank up from `held` after its beginning (-1: it did not; -2: nobody can say) until `freed` before its
    end. The critical path, given as ranks with indices of their calls, leads through those with `path`.
    """
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for step in steps:
        waited = step.waited
        for rank, call in step.calls.items():
            places[rank, call.index] = step.number, microseconds(waited[rank]) if rank in waited else -1
    for rank in sorted(trace.ranks):
        calls, spans = trace.ranks[rank].calls, blocked_spans(trace.ranks[rank])
        unseen = {call.index for call in unseen_calls(trace.ranks[rank])}
        for call, row in zip(calls, rows_of(calls), strict=True):
            number, wait = places.get((rank, call.index), (0, 0))
            begin, end = spans.get(call.index, (None, None))
            yield {
                "rank": rank,
                "begin": microseconds(call.begin),
                "dur": _between(call.begin, call.end),
                "row": row,
                "wait": wait,
                "held": -2 if call.index in unseen else _between(call.begin, begin),
                "freed": 0 if end is None or call.end is None else _between(end, call.end),
                "path": int((rank, call.index) in path),
                "step": number,
                "op": call.op,
                "at": call.source,
                "via": call.via,
                "phase": call.phase,
                "bytes": call.bytes,
                "async": int(call.asynchronous),
                "error": call.error,
                "bucket": -1 if call.bucket is None else call.bucket,
                "params": clip(", ".join(call.parameters), _LONGEST_WORDS),
            }


def step_lines(steps: Iterable[Step], wrong: Collection[int] = ()) -> Iterator[Line]:
    """A line for each step; those of the numbers in `wrong` have a wrong result.

    `last` is the rank that the others had to wait for, `ready` the time until it entered.
    """
    for step in steps:
        late, begin = step.late, step.begin
        sender = step.source if step.message else None
        yield {
            "begin": microseconds(begin),
            "ready": _between(begin, late.begin if late else None),
            "dur": _between(begin, step.end),
            "last": late.rank if late else -1,
            "title": step.title,
            "round": step.round or 0,
            "sender": -1 if sender is None else sender,
            "state": step.state,
            "wrong": int(step.number in wrong),
            "bytes": size_of(step),
            "missing": step.missing,
        }


def mark_lines(trace: Trace) -> Iterator[Line]:
    """A line for each phase of each rank, outer ones before those inside; one that never ended lasts to the end."""
    for rank, own in sorted(trace.ranks.items()):
        for mark in own.marks:
            end = own.last if mark.end is None else mark.end
            begin, dur = microseconds(mark.begin), _between(mark.begin, end)
            yield {"rank": rank, "begin": begin, "dur": dur, "name": mark.name}


def _between(begin: float, end: float | None) -> int:
    return -1 if end is None else max(0, microseconds(end) - microseconds(begin))
