"""Drawing schedules: which faults, where, at which moment of the run, for how long; one seed draws the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from lab.errors import UsageError
from lab.features.faults.fault import Fault, fault_data
from lab.features.faults.kind import FaultKind, fault_kinds
from lab.features.faults.when import When
from lab.spec.reading import did_you_mean

T = TypeVar("T")
Schedule = tuple[Fault, ...]
DURATIONS_S = (0.2, 0.5, 1.0)
"""How long what only slows a run is in force: long beside a call, short beside every time-out."""
_ATTEMPTS = 50


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What schedules are drawn from; it is the `Chance` of every kind."""

    random: Random
    kinds: Sequence[type[FaultKind]]
    moments: Sequence[When]
    nodes: Sequence[str]
    ranks: Sequence[int]
    most: int = 3
    """Most faults of a schedule."""

    def one_of(self, choices: Sequence[T]) -> T:
        """One of them, each as likely as any other."""
        return self.random.choice(choices)

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
    trial = Pool(random=Random(0), kinds=(), moments=(), nodes=nodes, ranks=ranks)
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
