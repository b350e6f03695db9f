"""A world that is replayed, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.features.projection.actions import Action, Key, Transfer
from lab.features.projection.contention import Machine


class Player(NamedTuple):
    """Who goes through the steps of a recorded rank."""

    rank: int
    """On record."""
    copy: int
    """From 0: which of those that go through the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is replayed."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    """By rank on record, what it did in each step."""
    transfers: Mapping[Key, Transfer]
    seconds: Mapping[Key, float]
    """What each transfer takes when nothing else goes on."""
    parts: Mapping[Key, Sequence[Mapping[int, float]]] = field(default_factory=dict)
    """By transfer, in each recorded step and for each rank: as a part of those seconds, what it took there."""
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By operation, where a transfer is not on record: such parts, to draw from."""
    at_once: int = 1
    """Collectives of one lane that a rank carries at once."""
    carrying: float = 1.0
    """How many cores a rank wants while data is on its way, where cores are shared."""
    copies: int = 1
    """Of each rank."""
    common: frozenset[str] = frozenset()
    """Lanes in which all copies take part in the same transfer; of others each copy has its own."""
    weight: float = 1.0
    """Ranks that each player stands for, where cores are shared."""
    machine: Machine | None = None
    """That all ranks share; None: each has cores of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it; seconds of one training step, mean of the ranks but for the first."""

    step_s: float
    """Median."""
    steps_s: tuple[float, ...]
    """Of each step that counts."""
    own_s: float
    """Own work, with what its part of the cores makes of it."""
    exposed_s: float
    """In which a rank was held up by calls while data was on its way to it or from it."""
    waiting_s: float
    """In which it was held up and none was: it waited for others."""
    hidden_s: float
    """In which data was on its way, and it went on."""
