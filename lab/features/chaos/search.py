"""The search: schedules of faults are drawn from the record of a run, and tried until one breaks something.

Drawn are which faults, where, and at which moment of the run, of those that its record has. What breaks something is
shrunk.
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
    """Every exact moment of every rank: first those of rank 0 in their order, then those of rank 1, and so on."""
    of_calls = (_of_calls(rank, trace) for rank, trace in sorted(read_trace(record).ranks.items()))
    return [*chain.from_iterable(of_calls), *_of_notes(record)]


def first_occurrence(moment: When) -> When:
    """The first moment of its kind: the same call, phase or note of that rank, when it comes for the first time."""
    return replace(moment, count=1) if moment.note is None else replace(moment, equals=None)


def _of_calls(rank: int, trace: RankTrace) -> list[When]:
    calls = [(call.begin, call.end, call.op, None) for call in trace.calls if call.op in OPERATIONS]
    phases = [(span.begin, span.end, None, span.name) for span in trace.marks if span.name in PHASES]
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
"""How long what only slows a run is in force: long beside a call, short beside every time-out."""
_ATTEMPTS = 50


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
            drawn = {schedule_key(fault): fault for fault in (self._fault() for _ in range(count)) if fault is not None}
            schedule = tuple(drawn[text] for text in sorted(drawn))
            if schedule and schedule_key(*schedule) not in tried:
                tried.add(schedule_key(*schedule))
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


def schedule_key(*faults: Fault) -> str:
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
        if why := drawable[name].why_not(engine) if name in drawable else "":
            raise UsageError(f"{name} cannot be drawn: it {why}")
        if name not in drawable:
            what = f"no fault {name!r} is drawn for such a run{did_you_mean(name, possible)}"
            raise UsageError(what, f"allowed: {', '.join(possible)}")
    if named:
        return [possible[name] for name in dict.fromkeys(named)]
    return [kind for kind in possible.values() if kind.harm != "spoils"]


_NOTE = "note "


def broken_by(result: Result, harms: Sequence[Harm]) -> str:
    """What a run under faults broke, in a sentence; empty where it ended as such a run may.

    Args:
        result: of that run.
        harms: what the faults that were done to it can do.
    """
    if result.verdict == "hung":
        return f"it hung: {result.reason}"
    if result.verdict == "error":
        return f"it has no verdict: {result.reason}"
    if "spoils" in harms:
        return ""
    unmet = result.unmet_by_script
    if unmet and not anybody_failed(result):
        return f"nobody failed, and yet {unmet[0].sentence()}"
    noted = {(rank.rank, _NOTE + name) for rank in result.ranks if rank.exit_code == 0 for name in rank.notes}
    unmet_notes = [one for one in unmet if (one.rank, one.what) in noted]
    if unmet_notes:
        return f"a rank ended as if all were well: {unmet_notes[0].sentence()}"
    if anybody_failed(result) and "loses" not in harms:
        only = "its faults only took time" if harms else "no fault came"
        return f"it failed, though {only}: {result.reason}"
    return ""


def anybody_failed(result: Result) -> bool:
    """Whether a rank or a node failed, whatever was expected of what came out."""
    return result.culprit is not None or any(not one.met for one in result.expectations if one.what == "exit")


def shrink_schedule(schedule: Schedule, breaks: Callable[[Schedule], bool], most: int) -> list[Schedule]:
    """Schedules that broke something, each simpler than the one before; the last one is the shortest that was found.

    First with as few of its faults as will do, one before two; then each of these sooner and shorter. A simpler one is
    taken as soon as it breaks, until none does.

    Args:
        schedule: one that breaks something.
        breaks: tries one; called with no schedule twice.
        most: so many are tried.
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
        sooner = (
            [replace(fault, when=first_occurrence(fault.when))] if first_occurrence(fault.when) != fault.when else []
        )
        shorter = [replace(fault, for_s=for_s) for for_s in DURATIONS_S if fault.for_s and for_s < fault.for_s]
        for simpler in (*sooner, *shorter):
            yield (*schedule[:index], simpler, *schedule[index + 1 :])


PROOFS = 3
"""A schedule that was found breaks something so often, one run after the other."""
MOST_SHRINKING = 40
"""Most schedules that are tried to shrink one."""


class Trial(Frozen):
    """A schedule that was tried, and what came of it."""

    schedule: Schedule
    ended: str
    """The verdict of the run under these faults."""
    reason: str = ""
    """Its reason, in one sentence."""
    broken: str = ""
    """What it broke, in a sentence; empty: nothing."""
    run: str = ""
    """Name of the run."""
    after: str = ""
    """Name of the run after it, where there was one."""
    seconds: float = 0.0
    step: str = "drawn"
    """Why it was tried: `drawn`, `shrunk`, `proof`."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**vars(self), "schedule": [fault_data(fault) for fault in self.schedule]}


@dataclass(kw_only=True)
class SearchResult:
    """What a search came to."""

    trials: list[Trial] = field(default_factory=list)
    schedule: Schedule | None = None
    """The shortest one that breaks something; None: none was found."""
    broken: str = ""
    """What it breaks."""
    proofs: int = 0
    """How often it broke something, of `PROOFS`."""

    @property
    def ends(self) -> Counter[str]:
        """How many of the schedules that were drawn ended how."""
        return Counter(trial.ended for trial in self.trials if trial.step == "drawn")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ends": dict(self.ends),
            "found": [fault_data(fault) for fault in self.schedule or ()],
            "broken": self.broken,
            "proofs": self.proofs,
            "trials": [trial.to_json() for trial in self.trials],
        }


def sentences_of(schedule: Schedule | None) -> list[str]:
    """Faults in words, a sentence each."""
    return [fault_sentence(fault_data(fault)) for fault in schedule or ()]


def search_schedules(
    pool: Pool, runs: int, attempt: Callable[[Schedule, str], Trial], report: Callable[[Trial], object]
) -> SearchResult:
    """Look for a schedule that breaks something: the simplest that does each time, else the one that was drawn.

    Args:
        pool: what schedules are drawn from.
        runs: so many are drawn at most.
        attempt: tries one, for this step of the search.
        told: called with each trial.
    """
    result, tried = SearchResult(), set[str]()

    def breaks(schedule: Schedule, step: str) -> str:
        trial = attempt(schedule, step)
        result.trials.append(trial)
        report(trial)
        return trial.broken

    drawn = iter(lambda: pool.draw(tried), None)
    broken = next((one for one in islice(drawn, runs) if breaks(one, "drawn")), None)
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
