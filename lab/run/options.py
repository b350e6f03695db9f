"""How to run scenarios, and what plans follow from that. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.plan.cluster import ClusterInfo
from lab.plan.fit import Size, planned_clusters, refuse_unfit
from lab.plan.plan import Plan, make_plan
from lab.record.layout import RUNS
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class RunOptions(Size):
    """How to run a scenario; None means what the scenario or the cluster says."""

    cold: bool = False
    """Start fresh interpreters instead of forking the agents."""
    timeout_s: float | None = None
    """Seconds after which the run is hung."""
    trace: bool = True
    """Record the collectives, unless the scenario says not to."""
    trace_values: int | None = None
    """Keep at most this many elements of one side of a call as they are; 0: neither them nor summaries."""
    wait_s: float = 0.0
    """Seconds to wait for a cluster that is busy."""
    keep: bool = False
    """Keep a cluster that is made for the run."""
    runs: Path = RUNS
    """Folder that holds the records."""


def plan_run(scenario: Scenario, options: RunOptions, run: str, cluster: ClusterInfo) -> Plan:
    """The plan of a run on a cluster that is there, or that would be made for it.

    Raises:
        ClusterError: the cluster is too small, or has other limits than the scenario wants.
        UsageError: it makes no sense.
    """
    refuse_unfit(cluster, scenario, options)
    nnodes, nproc_per_node = options.of_run(scenario, cluster.shape)
    return make_plan(
        scenario,
        run=run,
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        master_addr=cluster.master_addr,
        cold=options.cold,
        timeout_s=options.timeout_s,
        trace=options.trace,
        trace_values=options.trace_values,
        shared=cluster.shared,
        node_env=cluster.shape.env,
    )


def plan_all(
    scenarios: Sequence[Scenario],
    options: RunOptions,
    asked: Mapping[str, Any],
    there: ClusterInfo | None = None,
    name: str = "made for it",
) -> list[tuple[Plan, ClusterInfo]]:
    """The plans of runs one after the other, as `Cluster.run` and `Cluster.run_all` would make them; where each runs.

    Args:
        scenarios: what would run.
        options: how.
        asked: fields of a cluster's shape that were asked for.
        there: the cluster that is up; None: one would be made.
        name: the name of that one.

    Raises:
        ClusterError: the cluster is too small, or has other limits than a scenario wants.
        UsageError: a plan makes no sense.
    """
    clusters = planned_clusters(scenarios, options, asked, there, name)
    pairs = zip(scenarios, clusters, strict=True)
    return [(plan_run(scenario, options, "dry-run", cluster), cluster) for scenario, cluster in pairs]
