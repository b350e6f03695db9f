"""A process that loads data for a rank is killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lab.features.faults.kind import Ground, ReadBack
from lab.features.faults.rank_fault import RankFault
from lab.spec.declare import key
from lab.spec.kinds import whole_number


@dataclass(frozen=True, kw_only=True)
class Loader(RankFault):
    """A worker of a DataLoader ends at once, as where memory ran out; nothing takes that back."""

    does: ClassVar[str] = "a worker process of a rank's DataLoader is killed"
    example: ClassVar[str] = "loader: 1"
    shown_as: ClassVar[tuple[str, ...]] = ("loader_killed",)
    worker: int = key(0, whole_number(0, 1023), "loader: {rank: 1, worker: 2}")
    """Which one, in the order of their start."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """`1`, or `1 2`."""
        return f"{{rank: {words[0]}, worker: {words[1]}}}" if len(words) == 2 else super().parse(words)

    def apply(self, ground: Ground) -> None:
        """Kill it."""
        ground.ask(self.node_in(ground), "loader", {"rank": self.rank, "worker": self.worker})

    def undo(self, _: Ground) -> None:
        """It stays dead."""

    def read_back(self, ground: Ground) -> ReadBack:
        """How many there are still; it was seen to be gone when it was killed."""
        node = self.node_of(ground)
        found = {} if node is None else ground.look_at(node, "loader", {"rank": self.rank})
        return ReadBack(in_force=True, found={"left": found.get("left", 0)})

    def __str__(self) -> str:
        """`loader 0 of rank 1 is killed`."""
        return f"loader {self.worker} of rank {self.rank}"


KIND = Loader
