"""How to run scenarios, and what plans follow from that."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.engine.protocol import Request
from lab.frozen import dataclass
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan, PlanOptions, make_plan, planned_clusters, with_asked
from lab.record.layout import RUNS
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.record.read import Turn
    from lab.run.companion import Companion


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlanOptions):
    """How to run a scenario."""

    wait_s: float = 0.0
    """Seconds to wait for a cluster that is busy."""
    keep: bool = False
    """Keep a cluster that is made for the run."""
    runs: Path = RUNS
    """Folder that holds the records."""
    outputs: Path | None = None
    """Folder for files that runs make; None: the record of each."""
    turn: Turn | None = None
    """Its place among runs that are made one after the other."""
    stdin: bool = False
    """Let rank 0 read the standard input of this process."""
    terminal: bool = False
    """Let debuggers of ranks have the terminal of this process, where there is one, one after another."""
    allow_volumes: bool = False
    """Let a scenario file mount folders of this machine that lie outside of its own."""
    pull: bool = False
    """Let the engine pull the image that a scenario file names."""
    update: bool | None = None
    """Whether `expect: calls: snapshot` writes its file anew; None: only one that is missing, and none in CI."""
    check_archive: bytes = b""
    """The folder of the scenario's check, from `pack_folder`, that no rank sees; empty: it is that of the script."""
    keep_faults: bool = False
    """Leave in force what `lab fault` did, before the run and after it."""
    companions: Sequence[Companion] = ()
    """What goes along with each run, besides what plans say."""
    calls: Any = None
    """Carries calls of functions to ranks, which run them in the place of the script; its folder is not shipped."""

    def __post_init__(self) -> None:
        """Take a folder that is given as text."""
        folders = {"runs": Path(self.runs), "outputs": None if self.outputs is None else Path(self.outputs)}
        vars(self).update(folders)

    def in_turn(self, scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, RunOptions]]:
        """Each of several scenarios that are run one after the other, with the options of its run."""
        from lab.record.read import Turn  # a run that is made alone has none

        suite = suite_name()
        for number, scenario in enumerate(scenarios, start=1):
            turn = Turn(suite=suite, number=number, of=len(scenarios))
            yield scenario, replace(self, turn=turn, outputs=self.outputs and self.outputs / scenario.name)


def suite_name() -> str:
    """A name for runs that belong together: when they began."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


class DryRun(NamedTuple):
    """One run that was only planned."""

    plan: Plan
    requests: tuple[Request, ...] = ()
    """What makes its cluster; empty where one is there, or is made for an earlier run, or no engine answers."""

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, with the requests."""
        return {**self.plan.to_json(), "requests": [request._asdict() for request in self.requests]}


def plan_all(
    scenarios: Sequence[Scenario],
    options: RunOptions,
    asked: Mapping[str, Any],
    there: ClusterInfo | None = None,
    name: str = "made for it",
) -> list[tuple[Plan, ClusterInfo]]:
    """The plans of runs one after the other, as `Cluster.run` and `Cluster.run_all` would make them; where each runs.

    Raises:
        ClusterUnfit: the cluster is too small, or has other limits than a scenario wants.
        UsageError: a plan makes no sense.
    """
    clusters = planned_clusters(scenarios, options, asked, there, name)
    pairs = zip(scenarios, clusters, strict=True)
    return [
        (make_plan(with_asked(scenario, asked), "dry-run", cluster, options), cluster) for scenario, cluster in pairs
    ]
