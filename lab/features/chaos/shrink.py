"""Making a schedule that breaks something as short and as simple as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from lab.features.chaos.draw import DURATIONS_S, Schedule, said
from lab.features.chaos.moments import earliest
from lab.features.faults.fault import Fault


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
