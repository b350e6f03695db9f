"""Options of runs, companions of runs, and the plans that follow from the options."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.engine.protocol import Engine, Request
from lab.node.messages.agent import NOTHING, WorkerStart
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan, PlanOptions, WorkerPlan, make_plan, planned_clusters, with_asked
from lab.record.layout import RUNS
from lab.spec.kinds import check_option
from lab.spec.scenario import Expect, Scenario

if TYPE_CHECKING:
    from lab.record.events import Event
    from lab.record.read import Record, Turn
    from lab.record.result import Expectation
    from lab.record.write import RecordWriter
    from lab.run.agent_channels import AgentChannels
    from lab.run.collect import Observer

SELDOM_S = 1.0


class Companion:
    """A feature's part of a run; this class does nothing.

    The constructor of a companion gets the plan's part, the plan, the engine, the cluster, and whether the lab removes
    the cluster after the run. The options of the run list other companions.
    """

    triggers: Sequence[dict[str, Any]] = ()
    """Points at which workers are held."""

    def __init__(self, *_: object, **__: object) -> None:
        """Ignore what a companion gets."""

    @property
    def held_s(self) -> float:
        """Seconds for which it has held workers; the time limit grows by them."""
        return 0.0

    @property
    def pending(self) -> bool:
        """Whether it is changing nodes now."""
        return False

    def describe(self, record: Path) -> Mapping[str, Any]:
        """Return its fields for the plan of the run, whose record is in this folder."""
        return {}

    def before_run(self) -> None:
        """Act before the run begins.

        Raises:
            LabError: this fails.
        """

    def claim(self, agents: AgentChannels, node: str) -> None:
        """Send the agent of a node what it needs, right after the node was claimed."""

    def follow_run(self, agents: AgentChannels, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Follow the run as the workers start; call `done` after changing nodes."""

    def handle_message(self, message: Any) -> None:
        """Handle a message of an agent."""

    def finish(self) -> None:
        """Undo its changes while the agents of the run are still connected."""

    def after_run(self) -> None:
        """Act after the run has ended."""

    def close(self) -> None:
        """Release its resources."""

    def report_results(self, record: Record, expect: Expect) -> tuple[Sequence[Mapping[str, Any]], list[Expectation]]:
        """Return its entries for the result, and its expectations."""
        return (), []


class Stdin:
    """An empty standard input for every rank, and no terminal."""

    @property
    def held(self) -> bool:
        """Whether a person at a terminal may be holding ranks."""
        return False

    @property
    def held_s(self) -> float:
        """Seconds for which that was so until now."""
        return 0.0

    @property
    def allowed_s(self) -> float | None:
        """Time limit of the current call in seconds; None: that of the plan."""
        return None

    def kind(self, rank: int) -> str:
        """Return what a rank reads, see `lab.node.messages.agent`."""
        return NOTHING

    def env(self, rank: int) -> dict[str, str]:
        """Return variables for a rank that depend on what it reads."""
        return {}

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """Return the message that starts a worker."""
        env = {**worker.env, **self.env(worker.rank)}
        return WorkerStart(worker.rank, worker.local_rank, env, list(worker.argv), stdin=self.kind(worker.rank))

    def start_reading(self, agents: AgentChannels) -> None:
        """Begin to read, because the ranks have started."""

    def handle_message(self, message: Any) -> None:
        """Handle an agent's message about what a rank reads, or about its end."""

    def poll(self) -> float:
        """Do what is due, and return the seconds until something else is due."""
        return SELDOM_S

    def stop_reading(self) -> None:
        """Stop reading, because the ranks have ended or are about to."""


class RunOptions(PlanOptions):
    """Options of a run."""

    wait_s: float = 0.0
    """Seconds to wait for a busy cluster."""
    stall_s: float | None = None
    """Seconds after which to end a run whose ranks wait for each other without progress; 0: never; None: in pytest, as
    `--lab-stall`, else never."""
    keep: bool = False
    """Keep a cluster that is created for the run."""
    runs: Path = RUNS
    """Folder that holds the records."""
    outputs: Path | None = None
    """Folder for files that runs create; None: the record of each run."""
    turn: Turn | None = None
    """Its position among the runs of a suite."""
    stdin: bool = False
    """Let rank 0 read the standard input of this process."""
    terminal: bool = False
    """Give debuggers of ranks the terminal of this process, if it has one, one after the other."""
    allow_volumes: bool = False
    """Let a scenario file mount folders of this machine outside its own."""
    pull: bool = False
    """Let the engine pull the image that a scenario file names."""
    update: bool | None = None
    """Whether `expect: calls: snapshot` rewrites its file; None: only write a missing file, and none in CI."""
    check_folder: Any = None
    """Snapshot of the folder of the scenario's check, which no rank sees; None: the script's folder."""
    all_files: bool = False
    """Ship files that `.gitignore` names, too."""
    keep_faults: bool = False
    """Keep the faults of `lab fault` in force, before and after the run."""
    companions: Sequence[Companion] = ()
    """Companions of each run, besides those of its plan."""
    modules: Mapping[str, Path] | None = None
    """Files to ship in addition to the script's folder, by their paths next to the script."""
    calls: Any = None
    """Sends function calls to ranks, which run them instead of the script; its folder is not shipped."""

    def __post_init__(self) -> None:
        """Check types, and convert folders and quantities that are given as text."""
        annotations = {**PlanOptions.__annotations__, **RunOptions.__annotations__}
        vars(self).update({name: check_option(name, value, annotations[name]) for name, value in vars(self).items()})
        vars(self).update(runs=Path(self.runs), outputs=None if self.outputs is None else Path(self.outputs))

    def in_turn(self, scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, RunOptions]]:
        """Yield each scenario of a suite with the options of its run."""
        from lab.record.read import Turn  # a single run has none

        suite = suite_name()
        for number, scenario in enumerate(scenarios, start=1):
            turn = Turn(suite=suite, number=number, of=len(scenarios))
            yield scenario, replace(self, turn=turn, outputs=self.outputs and self.outputs / scenario.name)


class Job(NamedTuple):
    """One run: what runs, where and how, and who observes it."""

    plan: Plan
    cluster: ClusterInfo
    engine: Engine
    writer: RecordWriter
    """Of its record."""
    observer: Observer
    options: RunOptions
    companions: Sequence[Companion] = ()
    """Companions of the run."""

    def options_again(self, runs: Path) -> RunOptions:
        """Return the options of more runs of the same program, whose records are in another folder."""
        own: dict[str, Any] = dict.fromkeys(("nodes", "nproc_per_node", "interactive", "outputs", "turn"))
        return replace(self.options, **own, runs=runs, companions=(), update=False, stdin=False, terminal=False)


def suite_name() -> str:
    """Return a name for runs that belong together, from the current time."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


class DryRun(NamedTuple):
    """One run that was only planned."""

    plan: Plan
    requests: tuple[Request, ...] = ()
    """Requests that create its cluster; empty if one exists, is created for an earlier run, or no engine answers."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, with the requests."""
        return {**self.plan.to_json(), "requests": [request._asdict() for request in self.requests]}


def plan_all(
    scenarios: Sequence[Scenario],
    options: RunOptions,
    asked: Mapping[str, Any],
    there: ClusterInfo | None = None,
    name: str = "made for it",
) -> list[tuple[Plan, ClusterInfo]]:
    """Plan runs one after the other, as `Cluster.run` and `Cluster.run_all` would run them.

    Returns:
        Each plan with the cluster it runs on.

    Raises:
        ClusterUnfit: the cluster is too small, or has other limits than a scenario wants.
        UsageError: a plan makes no sense.
    """
    pairs = zip(scenarios, planned_clusters(scenarios, options, asked, there, name), strict=True)
    return [(make_plan(with_asked(one, asked), "dry-run", cluster, options), cluster) for one, cluster in pairs]
