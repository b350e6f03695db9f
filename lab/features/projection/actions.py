"""What a rank does in a training step: own work, calls that it begins, calls that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """Which collective or message of a training step it is."""

    lane: str
    """The group, or sender, receiver and tag of a message: what is in one lane goes one after the other."""
    number: int
    """From 0."""


class Work(NamedTuple):
    """Own work."""

    seconds: float
    """On a core of its own."""
    phase: str
    """The innermost mark around it; empty outside."""
    idle_s: float = 0.0
    """Beside that, seconds in which it wanted no core: a device worked for it, or it slept."""

    @property
    def whole_s(self) -> float:
        """What it takes on a core of its own."""
        return self.seconds + self.idle_s

    def plus(self, other: Work) -> Work:
        """Both."""
        return Work(self.seconds + other.seconds, self.phase, self.idle_s + other.idle_s)

    def times(self, factor: float) -> Work:
        """So many times as much of it."""
        return Work(self.seconds * factor, self.phase, self.idle_s * factor)


class Begin(NamedTuple):
    """A call is made, and the rank goes on."""

    key: Key


class Wait(NamedTuple):
    """The rank goes on when its call is over."""

    key: Key


Action = Work | Begin | Wait


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective or a message of the program."""

    op: str
    ranks: tuple[int, ...]
    """Who takes part; of a message sender and receiver."""
    size: float
    """Bytes, as nccl-tests counts them."""
    group: str
    """Name of its group."""
    phase: str
    """The mark within which it is called."""
    root: int | None = None
