"""How to run scenarios: options, what goes along with a run besides its agents, and the plans that follow."""

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
from lab.spec.scenario import Expect, Scenario

if TYPE_CHECKING:
    from lab.record.events import Event
    from lab.record.read import Record, Turn
    from lab.record.result import Expectation
    from lab.record.write import RecordWriter
    from lab.run.collect import Observer
    from lab.run.conversation import Conversation

SELDOM_S = 1.0


class Companion:
    """What goes along with a run for a feature; this one does nothing.

    Of a part of a plan it is made with the part, the plan, the engine, the cluster, and whether that is removed after
    the run; others are named in the options of the run.
    """

    triggers: Sequence[dict[str, Any]] = ()
    """Points at which workers are held."""

    @property
    def held_s(self) -> float:
        """For how long it has held workers, in seconds: so much longer the run may take."""
        return 0.0

    @property
    def pending(self) -> bool:
        """Whether it is changing nodes just now."""
        return False

    def describe(self, record: Path) -> Mapping[str, Any]:
        """What the plan of the run says of it; the record is in this folder."""
        return {}

    def begin(self) -> None:
        """Do what comes before the run.

        Raises:
            LabError: that cannot be done.
        """

    def claim(self, agents: Conversation, node: str) -> None:
        """Send the agent of a node what it has to know, right after it was asked to take part."""

    def attend(self, agents: Conversation, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Take part from now on: the workers are let go; `done` is called when it has changed nodes."""

    def hear(self, message: Any) -> None:
        """Hear a message of an agent."""

    def finish(self) -> None:
        """Take back what it did, while the agents of the run are still there."""

    def end(self) -> None:
        """The run is over."""

    def close(self) -> None:
        """Let go of what it holds."""

    def told(self, record: Record, expect: Expect) -> tuple[Sequence[Mapping[str, Any]], list[Expectation]]:
        """What results tell of it, and what it expected."""
        return (), []


class Stdin:
    """Nothing: every rank finds its standard input empty, and there is no terminal for any."""

    @property
    def held(self) -> bool:
        """Whether somebody at a terminal may keep ranks from going on."""
        return False

    @property
    def held_s(self) -> float:
        """For how long that was so until now."""
        return 0.0

    @property
    def allowed_s(self) -> float | None:
        """How long what is under way may take; None: what the plan of the run says."""
        return None

    def kind(self, rank: int) -> str:
        """What a rank reads, see `lab.node.messages.agent`."""
        return NOTHING

    def env(self, rank: int) -> dict[str, str]:
        """Variables for a rank, because of what it reads."""
        return {}

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """What a worker is started with."""
        env = {**worker.env, **self.env(worker.rank)}
        return WorkerStart(worker.rank, worker.local_rank, env, list(worker.argv), stdin=self.kind(worker.rank))

    def begin(self, agents: Conversation) -> None:
        """The ranks were let go."""

    def hear(self, message: Any) -> None:
        """Take a message of an agent about what a rank reads, or about its end."""

    def look(self) -> float:
        """Do what is due; returns for how many seconds nothing will be."""
        return SELDOM_S

    def end(self) -> None:
        """The ranks have ended, or are about to."""


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


class Job(NamedTuple):
    """One run: what is run, where and how, and who is told of it."""

    plan: Plan
    cluster: ClusterInfo
    engine: Engine
    writer: RecordWriter
    """Of its record."""
    observer: Observer
    options: RunOptions
    companions: Sequence[Companion] = ()
    """What goes along with it."""


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
