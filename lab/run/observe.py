"""What the observer of a run is told."""

from __future__ import annotations

from collections.abc import Callable


class Observer:
    """Watches a run; every method returns quickly. This one does nothing."""

    def progress(self, text: str) -> None:
        """Something is being done that takes a moment."""

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """A rank printed something: any bytes, not necessarily whole lines."""

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        """The run goes on; called about once a second. `where` says where ranks are, by time and columns."""

    def begins(self, attempt: int) -> None:
        """The launcher began the workers anew: what comes now is mostly of this attempt; the first was 0."""

    def terminal(self, rank: int | None, told: str, *, raw: bool) -> None:
        """A rank has the terminal now, or none: what to say of that, and whether all that it writes may act there.

        What it writes there comes as output of stream 3.
        """
