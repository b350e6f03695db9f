"""Time on cores that ranks share: how far work came in a stretch of a record, had each rank had a core of its own.

Where more cores are wanted at a moment than their machine has, each rank gets its part of them: of n ranks on c cores,
c/n. Calls that are under way want cores too: on one machine every byte is carried by them. A clock that runs that much
slower in such moments tells what each stretch would have taken alone. It stands still nowhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from lab.trace.timing import Span

_MOST_OTHERS = 64.0
_HALVINGS = 10


@dataclass(frozen=True, slots=True)
class Machine:
    """What ranks share."""

    cores: float
    others: float = 0.0
    """So many other programs that always want a core: what else went on there."""

    def rate(self, working: float) -> float:
        """How fast each of so many gets on, 1 where it has a core of its own."""
        wanting = working + self.others
        return min(1.0, self.cores / wanting) if working > 0 and wanting > 0 else 1.0


class Working(NamedTuple):
    """Stretches of time in which something wanted cores."""

    spans: Sequence[Span]
    wanting: float = 1.0
    """Of how many cores each of them, on average."""


class Clock:
    """Runs as fast as what works beside one another gets cores."""

    def __init__(self, working: Iterable[Working], machine: Machine | None) -> None:
        """From all that worked; None where nobody knows of cores."""
        changes: list[tuple[float, float]] = []
        for one in working if machine is not None else ():
            for begin, end in one.spans:
                if end > begin:
                    changes += [(begin, one.wanting), (end, -one.wanting)]
        changes.sort()
        self._times: Sequence[float] = [time for time, _ in changes]
        counts = accumulate(change for _, change in changes)
        self._rates = [1.0 if machine is None else machine.rate(count) for count in counts]
        self._told = [0.0]
        for number in range(1, len(changes)):
            passed = self._times[number] - self._times[number - 1]
            self._told.append(self._told[-1] + passed * self._rates[number - 1])

    def at(self, time: float) -> float:
        """What it shows at a moment of the record."""
        place = bisect_right(self._times, time) - 1
        if place < 0:
            return time - self._times[0] if self._times else time
        return self._told[place] + (time - self._times[place]) * self._rates[place]

    def between(self, begin: float, end: float) -> float:
        """Seconds that passed on it."""
        return max(0.0, self.at(end) - self.at(begin))

    def of(self, spans: Iterable[Span]) -> float:
        """Seconds that passed on it in all of them together."""
        return sum(self.between(begin, end) for begin, end in spans)


def machine_of(working: Sequence[Working], cores: int, part: float) -> Machine:
    """The machine of what worked in these spans, and ran in such a part of the time in which it wanted a core.

    Where that is less than what their own number leaves each, others worked there too: as many as explain it.
    """
    wanted = sum(one.wanting * (end - begin) for one in working for begin, end in one.spans)
    low, high = 0.0, _MOST_OTHERS
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        clock = Clock(working, Machine(cores, middle))
        given = sum(one.wanting * clock.of(one.spans) for one in working)
        low, high = (middle, high) if given > part * wanted else (low, middle)
    return Machine(cores, low)
