"""The interpreter of a rank stands still again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.kind import Harm
from lab.features.faults.rank_fault import OwnDeed
from lab.spec.declare import key
from lab.spec.kinds import duration, whole_number

_LONGEST_S = 3600


@dataclass(frozen=True, kw_only=True)
class Pauses(OwnDeed):
    """As where a garbage collector looks through a large heap: all threads wait for the lock meanwhile."""

    does: ClassVar[str] = "a rank's interpreter stands still every so often, as in pauses of a garbage collector"
    example: ClassVar[str] = "pauses: {rank: 1, every: 200ms, last: 50ms}"
    shown_as: ClassVar[tuple[str, ...]] = ("straggler", "late")
    harm: ClassVar[Harm] = "slows"
    every_s: float = key(0.5, duration(_LONGEST_S), "pauses: {rank: 1, every: 200ms}", name="every")
    """Time between two of them, on average; each is drawn from half of it to one and a half."""
    last_s: float = key(0.1, duration(_LONGEST_S), "pauses: {rank: 1, last: 50ms}", name="last")
    """How long each is."""
    seed: int = key(0, whole_number(0, 2**31 - 1), "pauses: {rank: 1, seed: 7}")
    """Of what is drawn; ranks draw on their own."""

    @property
    def deed(self) -> Mapping[str, Any]:
        """For the worker."""
        return {"pauses": {"every_s": self.every_s, "last_s": self.last_s, "seed": self.seed}}

    def __str__(self) -> str:
        """`pauses of 0.1s every 0.5s in rank 1`."""
        return f"pauses of {self.last_s:g}s every {self.every_s:g}s in rank {self.rank}"


KIND = Pauses
