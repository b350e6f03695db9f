"""How to run scenarios, and what plans follow from that. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.plan.cluster import ClusterInfo
from lab.plan.fit import planned_clusters
from lab.plan.plan import Plan, PlanOptions, make_plan
from lab.record.layout import RUNS
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlanOptions):
    """How to run a scenario."""

    wait_s: float = 0.0
    """Seconds to wait for a cluster that is busy."""
    keep: bool = False
    """Keep a cluster that is made for the run."""
    runs: Path = RUNS
    """Folder that holds the records."""


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
    return [(make_plan(scenario, "dry-run", cluster, options), cluster) for scenario, cluster in pairs]
