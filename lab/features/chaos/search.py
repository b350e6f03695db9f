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
from itertools import combinations
from random import Random
from typing import Any

from lab.errors import UsageError
from lab.features.faults.fault import PHASES, Fault, When, fault_data, fault_sentence
from lab.features.faults.kinds import Chance, FaultKind, Harm, fault_kinds
from lab.node.messages.agent import Note
from lab.operations import OPERATIONS
from lab.record.read import Record
from lab.record.result import Result
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
    wrong = [one for one in unmet if (one.rank, one.what) in noted]
    if wrong:
        return f"a rank ended as if all were well: {wrong[0].sentence()}"
    if anybody_failed(result) and "loses" not in harms:
        only = "its faults only took time" if harms else "no fault came"
        return f"it failed, though {only}: {result.reason}"
    return ""


def broken_after(result: Result) -> str:
    """What the run after it broke, to which no fault was done, on what the one before had left; empty: nothing."""
    return "" if result.passed else f"the next run, without faults, {result.verdict}: {result.reason}"


def anybody_failed(result: Result) -> bool:
    """Whether a rank or a node failed, whatever was expected of what came out."""
    return result.culprit is not None or any(not one.met for one in result.expectations if one.what == "exit")


def shrink(schedule: Schedule, breaks: Callable[[Schedule], bool], most: int) -> list[Schedule]:
    """Schedules that broke something, each simpler than the one before; the last one is the shortest that was found.

    First with as few of its faults as will do, one before two; then each of these sooner and shorter. A simpler one is
    taken as soon as it breaks, until none does.

    Args:
        schedule: one that breaks something.
        breaks: tries one; called with no schedule twice.
        most: so many are tried.
    """
    found, tried = [schedule], {said(*schedule)}

    def step() -> bool:
        for simpler in _simpler(found[-1]):
            if len(tried) > most:
                return False
            if said(*simpler) not in tried:
                tried.add(said(*simpler))
                if breaks(simpler):
                    found.append(simpler)
                    return True
        return False

    while step():
        pass
    return found


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    for length in range(1, len(schedule)):
        yield from combinations(schedule, length)
    for place, fault in enumerate(schedule):
        for simpler in _simpler_faults(fault):
            yield (*schedule[:place], simpler, *schedule[place + 1 :])


def _simpler_faults(fault: Fault) -> Iterator[Fault]:
    first = earliest(fault.when)
    if first != fault.when:
        yield replace(fault, when=first)
    if fault.for_s is not None:
        yield from (replace(fault, for_s=shorter) for shorter in DURATIONS_S if shorter < fault.for_s)


PROOFS = 3
"""A schedule that was found breaks something so often, one run after the other."""
MOST_SHRINKING = 40
"""Most schedules that are tried to shrink one."""


@dataclass(frozen=True, kw_only=True)
class Trial:
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

    @property
    def sentence(self) -> str:
        """Its faults in words."""
        return "; ".join(fault_sentence(fault_data(fault)) for fault in self.schedule)


@dataclass(kw_only=True)
class Found:
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


def search(pool: Pool, runs: int, attempt: Callable[[Schedule, str], Trial], told: Callable[[Trial], object]) -> Found:
    """Look for a schedule that breaks something.

    Args:
        pool: what schedules are drawn from.
        runs: so many are drawn at most.
        attempt: tries one, for this step of the search.
        told: called with each trial.
    """
    found, tried = Found(), set[str]()

    def one(schedule: Schedule, step: str) -> Trial:
        trial = attempt(schedule, step)
        found.trials.append(trial)
        told(trial)
        return trial

    for _ in range(runs):
        schedule = pool.draw(tried)
        if schedule is None:
            break
        if one(schedule, "drawn").broken:
            simpler = shrink(schedule, lambda other: bool(one(other, "shrunk").broken), MOST_SHRINKING)
            _prove(found, simpler, one)
            break
    return found


def _prove(found: Found, schedules: list[Schedule], one: Callable[[Schedule, str], Trial]) -> None:
    """Take the simplest of these that breaks something each time; else the one that was drawn."""
    for schedule in (*schedules[:0:-1][:2], schedules[0]):
        broken = []
        for _ in range(PROOFS):
            trial = one(schedule, "proof")
            broken += [trial.broken] if trial.broken else []
            if not trial.broken:
                break
        found.schedule, found.proofs = schedule, len(broken)
        found.broken = broken[0] if broken else next(one.broken for one in found.trials if one.broken)
        if found.proofs == PROOFS:
            return
