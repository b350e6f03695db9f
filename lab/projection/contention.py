"""Time on cores that ranks share: how far work came in a stretch of a record, had each rank had a core of its own.

Where more ranks work at a moment than their machine has cores, each gets its part of them: of n ranks on c cores, c/n.
Calls that are under way are work too: on one machine every byte is carried by its cores. A clock that runs that much
slower in such moments tells what each stretch would have taken alone. It stands still nowhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from lab.trace.timing import Span


class Clock:
    """Runs as fast as what works beside one another gets cores."""

    def __init__(self, working: Iterable[Span], cores: float | None) -> None:
        """From the spans in which something worked, each on one core; None where nobody knows of cores."""
        changes: list[tuple[float, int]] = []
        for begin, end in working if cores is not None else ():
            if end > begin:
                changes += [(begin, 1), (end, -1)]
        changes.sort()
        self._times: Sequence[float] = [time for time, _ in changes]
        counts = list(accumulate(change for _, change in changes))
        self._rates = [1.0 if cores is None else min(1.0, cores / max(count, 1)) for count in counts]
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
