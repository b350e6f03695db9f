"""The search: schedules are drawn and tried until one breaks something, which is then shrunk and proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.features.chaos.draw import Pool, Schedule
from lab.features.chaos.shrink import shrink
from lab.features.faults.fault import fault_data, fault_sentence

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
