"""The data of a scenario: frozen, validated where it enters (`lab.spec.load`), trusted afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["passed", "failed", "error", "hung"]
BACKENDS = ("gloo", "nccl", "mpi", "ucc")
MAX_TRACE_VALUES = 1_000_000
"""Most elements of one side of a call that a trace may keep as they are."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Limits of one node."""

    cpus: float | None = None
    """CPU cores a node may use; None: no limit."""
    memory_bytes: int | None = None
    """Memory a node may use; None: no limit."""
    gpus: int = 0
    """GPUs of one node."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A host folder that every node sees; opt-in, because everything else is shipped."""

    source: Path
    """Absolute path on the host."""
    target: str
    """Absolute path in the node."""
    read_only: bool = False
    """Whether nodes may only read it."""


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """Whether and how the collectives of a run are recorded."""

    on: bool = True
    """Whether they are."""
    values: int | None = None
    """At most so many elements of one side of a call are kept as they are; 0: neither they nor summaries; None: as the
    recorder's default says."""


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What must come out of a run."""

    exit: Mapping[int, int] = field(default_factory=dict)
    """Exit code per rank; a negative one is the signal that killed it, as in `subprocess`. A rank that is not named is
    expected to exit with 0, unless `verdict` is another than `passed`."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Expected value by note name. A string may be arithmetic on rank, world_size, ...; a mapping whose keys are
    all integers holds one value per rank; anything else is the same for every rank."""
    logs: Mapping[int, str] = field(default_factory=dict)
    """Regular expression per rank that must be found somewhere in the rank's log."""
    calls: Sequence[str] | Mapping[int, Sequence[str]] | None = None
    """What each rank must have called, in order, in the notation of `lab.spec.calls`: a list for all ranks, or one for
    each rank that a mapping names. None: not checked."""
    check: str | None = None
    """`file.py:function` in the script's folder, called inside node 0 with the list of all ranks' results."""
    verdict: Verdict = "passed"
    """The verdict that the bare run must have; `hung` or `failed` for scenarios that are broken on purpose."""
    culprit: int | None = None
    """The rank that must be named as the first culprit; None: not checked."""
    reason: str | None = None
    """Regular expression that must be found in the run's reason; None: not checked."""
    relative_tolerance: float = 1e-5
    """Largest relative difference between a float that was noted and the one expected."""
    absolute_tolerance: float = 1e-8
    """Largest absolute difference between a float that was noted and the one expected."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What to run, on what cluster, and what must come out."""

    name: str
    """Lower-case letters, digits, `-` and `_`; names the record."""
    script: Path
    """Absolute path of the script on the host; its folder is shipped to every node."""
    source: Path | None = None
    """The YAML file; None for a plain script."""
    learn: str = ""
    """One or two sentences: the idea that the scenario teaches."""
    predict: str = ""
    """The question that teaching mode asks before it shows the answer."""
    nodes: int | None = None
    """How many nodes take part; None: as many as the cluster has (1 where one has to be made)."""
    nproc_per_node: int | None = None
    """Workers on each node; None: as the cluster says (1 where one has to be made)."""
    backend: str = "gloo"
    """The torch.distributed backend that the script uses."""
    args: tuple[str, ...] = ()
    """Arguments of the script, the same on every rank."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables added on every rank."""
    timeout_s: float = 60.0
    """Seconds after which a run that has not ended is hung."""
    cold: bool = False
    """Start a fresh interpreter for every worker instead of forking the warm agent."""
    resources: Resources = field(default_factory=Resources)
    """Limits of each node, where the run makes its own cluster."""
    volumes: tuple[Volume, ...] = ()
    """Host folders that every node sees, where the run makes its own cluster."""
    trace: Tracing = field(default_factory=Tracing)
    """What is recorded of the collectives."""
    expect: Expect = field(default_factory=Expect)
    """What must come out."""
