"""The plan of a run, as its record tells it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.plan.plan import WorkerPlan


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The place of a run among those that one command made, one after the other: a suite."""

    suite: str = ""
    """Name of the suite: when it began."""
    number: int = 0
    """From 1."""
    of: int = 0
    """How many runs there were to be."""
    case: str = ""
    """What `lab test` calls it, with its place in the matrix; empty of other suites."""
    attempt: int = 1
    """Above 1 where it had failed and was tried again."""


@dataclass(frozen=True, kw_only=True)
class RecordedPlan:
    """`plan.json`; what is missing there, or damaged, has its default."""

    scenario: str = ""
    script: str = ""
    engine: str = ""
    cluster: str = ""
    nnodes: int | None = None
    nproc_per_node: int | None = None
    master_addr: str = ""
    master_port: int | None = None
    cold: bool | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    """Memory limit of a node."""
    stepped: bool = False
    """Whether its ranks were held before each call, so that times of the run say nothing of it."""
    turn: Turn | None = None
    """Its place in a suite; None of a run that was made alone."""
    faults: tuple[dict[str, Any], ...] = ()
    """What was to be broken on purpose, each as a scenario says it."""
    workers: tuple[WorkerPlan, ...] = ()
    """Empty where the record has no plan."""
