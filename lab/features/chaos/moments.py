"""The moments of a run at which a fault can be set off exactly: its calls, phases and notes on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from lab.features.faults.when import PHASES, When
from lab.node.messages.agent import Note
from lab.operations import OPERATIONS
from lab.record.read import Record
from lab.trace.model import RankTrace
from lab.trace.read import read_trace


def moments_of(record: Record) -> list[When]:
    """Every exact moment of every rank: first those of rank 0 in their order, then those of rank 1, and so on."""
    found: list[When] = []
    for rank, trace in sorted(read_trace(record).ranks.items()):
        found += [moment for _, moment in sorted(_of_calls(rank, trace), key=lambda one: one[0])]
    return [*found, *_of_notes(record)]


def earliest(moment: When) -> When:
    """The first moment of its kind: the same call, phase or note of that rank, when it comes for the first time."""
    return replace(moment, count=1) if moment.note is None else replace(moment, equals=None)


def _of_calls(rank: int, trace: RankTrace) -> Iterator[tuple[float, When]]:
    calls = [(call.begin, call.end, "op", call.op) for call in trace.calls if call.op in OPERATIONS]
    phases = [(mark.begin, mark.end, "phase", mark.name) for mark in trace.marks if mark.name in PHASES]
    seen: Counter[str] = Counter()
    for begin, end, what, name in sorted([*calls, *phases], key=lambda one: one[0]):
        seen[name] += 1
        op, phase = (name, None) if what == "op" else (None, name)
        before = When(rank=rank, op=op, phase=phase, count=seen[name])
        yield begin, before
        if end is not None:
            yield end, replace(before, edge="after")


def _of_notes(record: Record) -> Iterator[When]:
    notes = [event for event in record.events() if isinstance(event, Note) and event.rank >= 0]
    times: Counter[tuple[int, str]] = Counter((note.rank, note.name) for note in notes)
    told = set[tuple[int, str, str]]()
    for note in sorted(notes, key=lambda one: one.rank):
        if times[note.rank, note.name] == 1:
            yield When(rank=note.rank, note=note.name)
        elif isinstance(note.value, (int, float, str)) and (note.rank, note.name, repr(note.value)) not in told:
            told.add((note.rank, note.name, repr(note.value)))
            yield When(rank=note.rank, note=note.name, equals=note.value)
