"""How to run a scenario, what plan follows from that, and whether a cluster can run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.errors import ClusterError
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan, make_plan
from lab.record.layout import RUNS
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a scenario; None means what the scenario or the cluster says."""

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
    trace_values: int | None = None
    """Keep at most so many elements of one side of a call as they are; 0: neither them nor summaries."""
    wait_s: float = 0.0
    """Seconds to wait for a cluster that is busy."""
    keep: bool = False
    """Keep a cluster that is made for the run."""
    runs: Path = RUNS
    """Folder that holds the records."""


def refuse_unfit(cluster: ClusterInfo, scenario: Scenario, options: RunOptions) -> None:
    """Refuse a scenario that a cluster cannot run as asked.

    Raises:
        ClusterError: the cluster is too small, or has other limits than the scenario wants.
    """
    nodes = options.nodes or scenario.nodes or cluster.shape.nodes
    if nodes > cluster.shape.nodes:
        raise ClusterError(
            f"{scenario.name} needs {nodes} nodes, cluster {cluster.name} has {cluster.shape.nodes}",
            f"`lab down` and `lab up --nodes {nodes}`, or use another cluster with --name",
        )
    wanted, has = scenario.resources, cluster.shape
    differences = [
        f"{name} {wish}, the cluster has {found or 'no limit'}"
        for name, wish, found in (
            ("cpus", wanted.cpus, has.cpus),
            ("memory (bytes)", wanted.memory_bytes, has.memory_bytes),
            ("gpus", wanted.gpus or None, has.gpus),
        )
        if wish is not None and wish != found
    ]
    if differences:
        raise ClusterError(
            f"{scenario.name} asks for {'; '.join(differences)}",
            "run it without a cluster (`lab down` first), or use another one with --name",
        )


def plan_run(scenario: Scenario, options: RunOptions, run: str, cluster: ClusterInfo | None) -> Plan:
    """The plan of a run on a cluster, or on one that would be made for it.

    Raises:
        UsageError: it makes no sense.
    """
    shape = cluster.shape if cluster else None
    return make_plan(
        scenario,
        run=run,
        nnodes=options.nodes or scenario.nodes or (shape.nodes if shape else 1),
        nproc_per_node=options.nproc_per_node or scenario.nproc_per_node or (shape.nproc_per_node if shape else 1),
        master_addr=cluster.master_addr if cluster else "node0",
        cold=options.cold,
        timeout_s=options.timeout_s,
        trace=options.trace,
        trace_values=options.trace_values,
        shared=cluster.shared if cluster else "/shared",
        node_env=shape.env if shape else None,
    )
