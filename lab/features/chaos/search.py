"""The search: schedules are drawn and tried until one breaks something, which is then shrunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from lab.features.chaos.draw import DURATIONS_S, Pool, Schedule, earliest, said
from lab.features.faults.fault import Fault, fault_data, fault_sentence
from lab.features.faults.kind import Harm
from lab.record.result import Result

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
