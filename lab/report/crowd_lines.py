"""Lines that many ranks print at about the same time: the same line once, under the names of all that printed it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from lab.report.alike import alike, form_of, nearly_alike

_TOGETHER_S = 0.25
"""Lines are held back for so long."""


class CrowdLines:
    """Holds lines back for a moment and puts together what is alike; order is kept between lines that are not.

    Args:
        whole: whether every line is told; else, of many that differ in their numbers only, the first ones and the last.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._held: list[tuple[int, tuple[str, int]]] = []
        """Rank, line, and how often the rank had printed that before."""
        self._seen: Counter[tuple[int, str]] = Counter()
        self._since = self._held_since = 0.0

    def take(self, rank: int, line: str, when: float) -> None:
        """Hold a line that was printed at that Unix time."""
        if not self._held:
            self._since, self._held_since = when, time.monotonic()
        self._held.append((rank, (line, self._seen[rank, line])))
        self._seen[rank, line] += 1

    def due(self, when: float) -> bool:
        """Whether what is held is to be told before what was printed at that Unix time."""
        return when - self._since > _TOGETHER_S or time.monotonic() - self._held_since > _TOGETHER_S

    def told(self) -> Iterator[tuple[list[int], str]]:
        """What was held, each line with the ranks that printed it; nothing is held any more."""
        groups, self._held = alike(self._held), []
        self._seen.clear()
        if self._whole:
            yield from ((sorted(ranks), line) for ranks, (line, _) in groups)
            return
        for ranks, (line, _), more in nearly_alike(groups, lambda one: form_of(one[0])):
            yield sorted(ranks), f"… {more} more lines like these: lab logs" if more else line
