"""How a scenario is asked to run, beside what it says itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.frozen import dataclass
from lab.plan.cluster import Shape
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How a scenario is asked to run; None means what the scenario or the cluster says."""

    nodes: int | None = None
    """Nodes that take part."""
    nproc_per_node: int | None = None
    """Workers on each node."""
    cold: bool = False
    """Start fresh interpreters instead of forking the agents."""
    timeout_s: float | None = None
    """Seconds after which the run is hung."""
    trace: bool = True
    """Record the collectives, unless the scenario says not to."""
    output_bytes: int | None = None
    """What each rank may print; the rest is dropped."""
    backend: str | None = None
    """What carries the bytes of all process groups, whatever backend the script names for them."""
    one_user: bool = False
    """Let the ranks of a node be one user, as under torchrun."""
    fresh: bool = False
    """Empty the shared folder before."""
    trace_values: int | None = None
    """Keep at most this many elements of one side of a call as they are; 0: neither them nor summaries."""
    interactive: int | None = None
    """The rank that has the terminal of whoever runs it, from its start to its end."""
    launcher: str | None = None
    """What starts the workers."""
    network: str | Mapping[str, Any] | None = None
    """What the links between nodes are like, as the key `network` says it."""
    faults: Sequence[Any] = ()
    """What is broken on purpose, beside what the scenario says."""

    def size_of_run(self, scenario: Scenario, shape: Shape) -> tuple[int, int]:
        """Nodes of a run, and workers on each, on a cluster of this shape."""
        return (
            self.nodes or scenario.nodes or shape.nodes,
            self.nproc_per_node or scenario.nproc_per_node or shape.nproc_per_node,
        )
