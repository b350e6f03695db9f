"""The ranks that are held until a fault is in force, and for how long any was."""

from __future__ import annotations

import time

from lab.node.messages.fault import Reached


class HeldRanks:
    """Those of one run."""

    def __init__(self) -> None:
        self._holding: list[Reached] = []
        self._since: float | None = None
        self._before_s = 0.0

    @property
    def held_s(self) -> float:
        """For how long any has been held, all in all."""
        return self._before_s + (0.0 if self._since is None else time.monotonic() - self._since)

    def hold(self, reached: Reached) -> None:
        """A rank is held."""
        self._holding.append(reached)
        if self._since is None:
            self._since = time.monotonic()

    def let_go(self, reached: Reached) -> None:
        """It goes on."""
        self._holding.remove(reached)
        if not self._holding:
            self._before_s, self._since = self.held_s, None
