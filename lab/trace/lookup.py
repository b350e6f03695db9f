"""How a rank looked for the store at which ranks meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StoreLookup:
    """One rank's look for a rendezvous store."""

    host: str
    port: int
    asked_rank: int
    """Which rank it says that it is."""
    world_size: int
    """How many ranks it expects."""
    source: str
    begin: float
    end: float | None = None
    """When it was answered or gave up; None if neither."""
    error: str = ""
    """Why it gave up."""

    @property
    def found(self) -> bool:
        """Whether there was a store that answered."""
        return self.end is not None and not self.error
