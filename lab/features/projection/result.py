"""What a projection says of larger worlds, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.features.projection.fitted import Fit
from lab.features.projection.replay import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The transfers of one kind in a training step."""

    op: str
    ranks: int
    bytes: float
    count: int
    """In a step, of all groups of the run on record."""
    algorithm: str
    seconds: float
    """Of each, when nothing else goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one world; seconds of a training step, of a rank."""

    ranks: int
    step_s: float
    low_s: float
    high_s: float
    own_s: float
    exposed_s: float
    """Held up by calls with data on its way."""
    waiting_s: float
    """Held up by calls, waiting for others."""
    hidden_s: float
    """Of own work: with data on its way."""
    measured_s: float | None
    """Where the world is one on record: median of its steps."""
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What larger worlds would take, as far as runs tell."""

    runs: tuple[tuple[str, int], ...]
    """Those that it rests on, with their ranks; the last is the one that is replayed."""
    network: str
    library: str
    """What chooses among algorithms."""
    machine: Machine | None
    """That all ranks of a world share; None: each has cores of its own."""
    fits: Mapping[str, Fit]
    """What the runs tell of their network, by operation."""
    error: float
    """By what part transfers may be off."""
    checks: tuple[Row, ...]
    """The worlds on record, replayed in the same way: how far off that is."""
    rows: tuple[Row, ...]
    assumed: tuple[str, ...]
    steps: int
    """Of the run that is replayed."""
    left_out: int
