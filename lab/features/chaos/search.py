"""Draw schedules of faults from the record of a run, and try them until one breaks something; then shrink it.

A schedule consists of faults, their targets, and their moments. Only moments from the record are drawn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice, takewhile
from random import Random
from typing import Any

from lab.errors import UsageError
from lab.features.faults.fault import PHASES, Fault, When, fault_data, fault_sentence
from lab.features.faults.kinds import Chance, FaultKind, Harm, fault_kinds
from lab.frozen import Frozen
from lab.node.messages.agent import Note
from lab.operations import OPERATIONS
from lab.record.read import Record
from lab.record.result import Result
from lab.spec.reading import did_you_mean
from lab.trace.model import RankTrace
from lab.trace.read import read_trace


def moments_of(record: Record) -> list[When]:
    """Return each exact moment of each rank: those of rank 0 in order, then those of rank 1, and so on."""
    of_calls = (_of_calls(rank, trace) for rank, trace in sorted(read_trace(record).ranks.items()))
    return [*chain.from_iterable(of_calls), *_of_notes(record)]


def first_occurrence(moment: When) -> When:
    """Return the first moment of this kind: the same call, phase, or note of that rank, the first time."""
    return replace(moment, count=1) if moment.note is None else replace(moment, equals=None)


def _of_calls(rank: int, trace: RankTrace) -> list[When]:
    calls = [(call.begin, call.end, call.op, None) for call in trace.calls if call.op in OPERATIONS]
    phases = [(span.begin, span.end, None, span.name) for span in trace.phases if span.name in PHASES]
    times, moments = Counter[str | None](), list[tuple[float, When]]()
    for begin, end, op, phase in sorted([*calls, *phases], key=lambda one: one[0]):
        times[op or phase] += 1
        before = When(rank=rank, op=op, phase=phase, count=times[op or phase])
        moments.append((begin, before))
        if end is not None:
            moments.append((end, replace(before, edge="after")))
    return [moment for _, moment in sorted(moments, key=lambda one: one[0])]


def _of_notes(record: Record) -> Iterator[When]:
    notes = [event for event in record.events() if isinstance(event, Note) and event.rank >= 0]
    times = Counter((note.rank, note.name) for note in notes)
    reported = set[tuple[int, str, str]]()
    for note in sorted(notes, key=lambda one: one.rank):
        key = (note.rank, note.name, repr(note.value))
        if times[note.rank, note.name] == 1:
            yield When(rank=note.rank, note=note.name)
        elif isinstance(note.value, (int, float, str)) and key not in reported:
            reported.add(key)
            yield When(rank=note.rank, note=note.name, equals=note.value)


Schedule = tuple[Fault, ...]
DURATIONS_S = (0.2, 0.5, 1.0)
"""Durations of faults that only slow a run: long for a call, short for any timeout."""
_ATTEMPTS = 50


class Pool(Chance):
    """The faults and moments that schedules are drawn from."""

    kinds: Sequence[type[FaultKind]]
    moments: Sequence[When]
    most: int = 3
    """Most faults in a schedule."""

    def draw(self, tried: set[str]) -> Schedule | None:
        """Draw a schedule that was not tried; None if none can be drawn. Half of all schedules have one fault."""
        for _ in range(_ATTEMPTS):
            count = next((number for number in range(1, self.most) if self.random.random() < 0.5), self.most)
            drawn = {schedule_key(fault): fault for fault in (self._fault() for _ in range(count)) if fault is not None}
            schedule = tuple(drawn[text] for text in sorted(drawn))
            if schedule and schedule_key(*schedule) not in tried:
                tried.add(schedule_key(*schedule))
                return schedule
        return None

    def _fault(self) -> Fault | None:
        """Draw a fault and a moment; None if they do not fit."""
        what = self.one_of(self.kinds).drawn(self)
        fitting = [one for one in self.moments if what is None or not what.by_worker or one.rank in what.ranks]
        if what is None or not fitting:
            return None
        moment, lasts = self.one_of(fitting), what.harm == "slows" or what.passes
        for_s = self.one_of(DURATIONS_S) if lasts else None
        with suppress(UsageError):
            return Fault(what=what, when=moment, for_s=for_s)
        return None


def schedule_key(*faults: Fault) -> str:
    """Return the faults on a line, as a file would write them; equal lines mean equal schedules."""
    return json.dumps([fault_data(fault) for fault in faults])


def kinds_drawn(
    engine: str, nodes: Sequence[str], ranks: Sequence[int], named: Sequence[str] = ()
) -> list[type[FaultKind]]:
    """Return the kinds to draw from on this engine: the named ones, or all that do not change data.

    Raises:
        UsageError: A named kind is unknown, is never drawn for such a run, or does not work on this engine.
    """
    trial = Chance(random=Random(0), nodes=nodes, ranks=ranks)
    drawable = {name: kind for name, kind in fault_kinds().items() if kind.drawn(trial) is not None}
    possible = {name: kind for name, kind in drawable.items() if not kind.why_not(engine)}
    for name in named:
        if why := drawable[name].why_not(engine) if name in drawable else "":
            raise UsageError(f"the search cannot use the fault {name}: it {why}")
        if name not in drawable:
            what = f"the search cannot use the fault {name!r} for this run{did_you_mean(name, possible)}"
            raise UsageError(what, f"allowed: {', '.join(possible)}")
    if named:
        return [possible[name] for name in dict.fromkeys(named)]
    return [kind for kind in possible.values() if kind.harm != "spoils"]


_NOTE = "note "


def broken_by(result: Result, harms: Sequence[Harm]) -> str:
    """Describe in a sentence what a run under faults broke; empty if it ended as such a run can.

    Args:
        result: Result of that run.
        harms: Effects that the injected faults can have.
    """
    if result.verdict in ("hung", "timeout"):
        return f"it hung: {result.reason}"
    if result.verdict == "error":
        return f"it has no verdict: {result.reason}"
    if "spoils" in harms:
        return ""
    unmet = result.unmet_by_script
    if unmet and not anybody_failed(result):
        return f"no rank failed, but {unmet[0].sentence()}"
    noted = {(rank.rank, _NOTE + name) for rank in result.ranks if rank.exit_code == 0 for name in rank.notes}
    if unmet_notes := [one for one in unmet if (one.rank, one.what) in noted]:
        return f"a rank ended without an error, but {unmet_notes[0].sentence()}"
    if anybody_failed(result) and "loses" not in harms:
        return f"it failed although {'its faults only delay ranks' if harms else 'no fault occurred'}: {result.reason}"
    return ""


def anybody_failed(result: Result) -> bool:
    """Return whether a rank or a node failed, whatever the scenario expects."""
    return result.culprit is not None or any(not one.met for one in result.expectations if one.what == "exit")


def shrink_schedule(schedule: Schedule, breaks: Callable[[Schedule], bool], most: int) -> list[Schedule]:
    """Return schedules that break something, each simpler than the one before; the last one is the simplest.

    It tries as few of the faults as possible, one before two, then earlier moments and shorter durations. It accepts a
    simpler schedule as soon as that breaks something, and stops when none does.

    Args:
        schedule: A schedule that breaks something.
        breaks: Tries a schedule; never called twice with the same one.
        most: Most schedules to try.
    """
    simpler, tried = [schedule], {schedule_key(*schedule)}
    candidates = _simpler(schedule)
    while (candidate := next(candidates, None)) is not None and len(tried) <= most:
        if schedule_key(*candidate) not in tried:
            tried.add(schedule_key(*candidate))
            if breaks(candidate):
                simpler.append(candidate)
                candidates = _simpler(candidate)
    return simpler


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    for length in range(1, len(schedule)):
        yield from combinations(schedule, length)
    for index, fault in enumerate(schedule):
        first = first_occurrence(fault.when)
        sooner = [replace(fault, when=first)] if first != fault.when else []
        shorter = [replace(fault, for_s=for_s) for for_s in DURATIONS_S if fault.for_s and for_s < fault.for_s]
        for simpler in (*sooner, *shorter):
            yield (*schedule[:index], simpler, *schedule[index + 1 :])


PROOFS = 3
"""How often a schedule must break something, run after run."""
MOST_SHRINKING = 40
"""Most schedules that are tried to shrink one."""


class Trial(Frozen):
    """A schedule that was tried, and its outcome."""

    schedule: Schedule
    ended: str
    """Verdict of the run under these faults."""
    reason: str = ""
    """Its reason, in one sentence."""
    broken: str = ""
    """The failure, in a sentence; empty: it broke nothing."""
    run: str = ""
    """Name of the run."""
    after: str = ""
    """Name of the run after it, if there was one."""
    seconds: float = 0.0
    step: str = "drawn"
    """Why it was tried: `drawn`, `shrunk`, `proof`."""

    def to_json(self) -> dict[str, Any]:
        """Convert the trial to plain data."""
        return {**vars(self), "schedule": [fault_data(fault) for fault in self.schedule]}


@dataclass(kw_only=True)
class SearchResult:
    """The outcome of a search."""

    trials: list[Trial] = field(default_factory=list)
    schedule: Schedule | None = None
    """The shortest schedule that breaks something; None: there is none."""
    broken: str = ""
    """The failure, in a sentence."""
    proofs: int = 0
    """How often it broke something, of `PROOFS`."""

    @property
    def ends(self) -> Counter[str]:
        """Count how the drawn schedules ended."""
        return Counter(trial.ended for trial in self.trials if trial.step == "drawn")

    def to_json(self) -> dict[str, Any]:
        """Convert the result to plain data."""
        return {
            "ends": dict(self.ends),
            "found": [fault_data(fault) for fault in self.schedule or ()],
            "broken": self.broken,
            "proofs": self.proofs,
            "trials": [trial.to_json() for trial in self.trials],
        }


def sentences_of(schedule: Schedule | None) -> list[str]:
    """Describe each fault in a sentence."""
    return [fault_sentence(fault_data(fault)) for fault in schedule or ()]


def search_schedules(
    pool: Pool, runs: int, attempt: Callable[[Schedule, str], Trial], report: Callable[[Trial], object]
) -> SearchResult:
    """Search for a schedule that breaks something: the simplest that always does, else the drawn one.

    Args:
        pool: Source of schedules.
        runs: Most schedules to draw.
        attempt: Tries a schedule for a step of the search.
        report: Called with each trial.
    """
    result, tried = SearchResult(), set[str]()

    def breaks(schedule: Schedule, step: str) -> str:
        trial = attempt(schedule, step)
        result.trials.append(trial)
        report(trial)
        return trial.broken

    broken = next((one for one in islice(iter(lambda: pool.draw(tried), None), runs) if breaks(one, "drawn")), None)
    if broken is None:
        return result
    result.broken = result.trials[-1].broken
    simpler = shrink_schedule(broken, lambda other: bool(breaks(other, "shrunk")), MOST_SHRINKING)
    for schedule in (*simpler[:0:-1][:2], broken):
        proofs = list(takewhile(bool, (breaks(schedule, "proof") for _ in range(PROOFS))))
        result.schedule, result.proofs = schedule, len(proofs)
        if proofs:
            result.broken = proofs[0]
        if result.proofs == PROOFS:
            break
    return result
