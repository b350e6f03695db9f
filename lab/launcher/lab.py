"""The lab itself: agents fork the workers that the plan lists."""

from __future__ import annotations

from lab.launcher.protocol import Layout, Starter


class Launcher:
    """No process starts workers but the agents."""

    plans_ranks = True
    one_user = False

    def refusal(self, layout: Layout) -> str:
        """It starts anything."""
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """None."""
        return ()

    def further(self, asking: Starter, line: str) -> Starter | None:
        """Nobody asks for any."""
        return None
