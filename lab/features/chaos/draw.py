"""Drawing schedules: which faults, where, and at which moment of the run, of those that its record has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from lab.errors import UsageError
from lab.features.faults.fault import PHASES, Fault, When, fault_data
from lab.features.faults.kind import Chance, FaultKind
from lab.features.faults.kinds import fault_kinds
from lab.node.messages.agent import Note
from lab.operations import OPERATIONS
from lab.record.read import Record
from lab.spec.reading import did_you_mean
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


Schedule = tuple[Fault, ...]
DURATIONS_S = (0.2, 0.5, 1.0)
"""How long what only slows a run is in force: long beside a call, short beside every time-out."""
_ATTEMPTS = 50


@dataclass(frozen=True, kw_only=True)
class Pool(Chance):
    """What schedules are drawn from."""

    kinds: Sequence[type[FaultKind]]
    moments: Sequence[When]
    most: int = 3
    """Most faults of a schedule."""

    def draw(self, tried: set[str]) -> Schedule | None:
        """A schedule that is not among those `said`; None where none is found any more. Half of all have one fault."""
        for _ in range(_ATTEMPTS):
            count = next((number for number in range(1, self.most) if self.random.random() < 0.5), self.most)
            drawn = {said(fault): fault for fault in (self._fault() for _ in range(count)) if fault is not None}
            schedule = tuple(drawn[text] for text in sorted(drawn))
            if schedule and said(*schedule) not in tried:
                tried.add(said(*schedule))
                return schedule
        return None

    def _fault(self) -> Fault | None:
        """One at a moment that it can be done at; None where it cannot be done at the one that was drawn."""
        what = self.one_of(self.kinds).drawn(self)
        fitting = [one for one in self.moments if what is None or not what.by_worker or one.rank in what.ranks]
        if what is None or not fitting:
            return None
        moment, lasts = self.one_of(fitting), what.harm == "slows" or what.passes
        for_s = self.one_of(DURATIONS_S) if lasts else None
        with suppress(UsageError):
            return Fault(what=what, when=moment, for_s=for_s)
        return None


def said(*faults: Fault) -> str:
    """Faults as a file would say them, on a line: two that say the same are the same."""
    return json.dumps([fault_data(fault) for fault in faults])


def kinds_drawn(
    engine: str, nodes: Sequence[str], ranks: Sequence[int], named: Sequence[str] = ()
) -> list[type[FaultKind]]:
    """The kinds that are drawn for a run on this engine: those that are named, or all that do not change data.

    Raises:
        UsageError: one that is named is not known, is never drawn for such a run, or cannot be done on this engine.
    """
    trial = Chance(random=Random(0), nodes=nodes, ranks=ranks)
    drawable = {name: kind for name, kind in fault_kinds().items() if kind.drawn(trial) is not None}
    possible = {name: kind for name, kind in drawable.items() if not kind.why_not(engine)}
    for name in named:
        if name in drawable and name not in possible:
            raise UsageError(f"{name} cannot be drawn: it {drawable[name].why_not(engine)}")
        if name not in drawable:
            raise UsageError(
                f"no fault {name!r} is drawn for such a run{did_you_mean(name, possible)}",
                f"allowed: {', '.join(possible)}",
            )
    if named:
        return [possible[name] for name in dict.fromkeys(named)]
    return [kind for kind in possible.values() if kind.harm != "spoils"]
