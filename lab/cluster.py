"""The public Python API: a cluster that is there while a `with` block lasts, and runs on it.

from lab import Cluster

with Cluster(nodes=3) as cluster:
    result = cluster.run("scenarios/scatter.yaml")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.engine.interrupts import defer_interrupts
from lab.engine.ownership import check_name, default_name
from lab.engine.protocol import Announce, Engine, Removed
from lab.engine.select import AUTO, available_engines, select_engine
from lab.errors import ClusterError, LabError
from lab.feature import all_entries, find_entry
from lab.frozen import refuse_arguments
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import has_wishes, shape_for_all
from lab.run.cluster_slot import ClusterSlot, RunAttempt, WarmCluster, run_on_own_cluster, run_with_rerun
from lab.run.collect import Observer
from lab.run.lock import ClusterLock
from lab.run.options import DryRun, RunOptions, plan_all
from lab.spec.keys import Volume, checked_folders
from lab.spec.kinds import check_option
from lab.spec.load import open_scenario, read_requirements
from lab.spec.reading import did_you_mean
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.record.result import Result

DEFAULT_NODES = 3
_SHAPE_FIELDS = ("nodes", "nproc_per_node", "image", "cpus", "gpus", "memory_bytes", "processes", "disk_bytes")
"""Arguments of a cluster that are fields of its shape."""


class Cluster:
    """N nodes on one network.

    Used as a context manager it is made on entry (or taken over, if one of the same name and shape is there) and
    removed on exit.

    Args:
        nodes: how many; None: 3, or as many as an existing cluster of this name has.
        nproc_per_node: workers a node gets where a scenario does not say.
        name: its name; None: the default cluster of the current folder.
        engine: `auto`, `docker`, `local`, `slurm`, or an engine of your own.
        image: image of the nodes; None: the lab's own.
        requirements: packages besides those of the image, as pip takes them, such as `["tqdm", "accelerate>=1"]`.
        data: folders of this machine that every rank reads as `$LAB_DATA/NAME`, by name.
        cpus: CPU cores a node may use.
        memory_bytes: memory a node may use; None: on the docker engine, its part of the machine.
        processes: processes and threads a node may have; None: on the docker engine, as many as the machine suggests.
        disk_bytes: what a run may write on a node; None: on the docker engine, its part of half of what is free.
        gpus: GPUs of each node.
        strict: give nodes no way out and little room: an internal network, a read-only root, no volumes.
        volumes: host folders that every node sees.
        env: environment of every worker.
        hosts: hosts that nodes are spread over, on an engine that has several; none: all of them.
        allocation: what a scheduler is told with the request, by the long names of its options: `{"partition": "gpu"}`.
        announce: called with each line of progress.

    Raises:
        EngineUnavailable: no engine answers.
        UsageError: the name is not allowed.
    """

    def __new__(cls, *_: Any, **named: Any) -> Cluster:
        """Refuse unknown arguments with a near match."""
        known = [name for name in Cluster.__init__.__annotations__ if name != "return"]
        refuse_arguments(cls, [name for name in named if name not in known and cls is Cluster], known)
        return super().__new__(cls)

    def __init__(
        self,
        nodes: int | None = None,
        *,
        nproc_per_node: int | None = None,
        name: str | None = None,
        engine: str | Engine = "auto",
        image: str | None = None,
        requirements: Sequence[str] = (),
        data: Mapping[str, str | Path] | None = None,
        cpus: float | None = None,
        memory_bytes: int | None = None,
        processes: int | None = None,
        disk_bytes: int | None = None,
        gpus: int | None = None,
        strict: bool = False,
        volumes: Sequence[Volume] = (),
        env: Mapping[str, str] | None = None,
        hosts: Sequence[str] = (),
        allocation: Mapping[str, str] | None = None,
        announce: Announce = lambda _: None,
    ) -> None:
        values, annotations = locals(), Cluster.__init__.__annotations__
        values = {key: check_option(key, it, annotations[key]) for key, it in values.items() if key in annotations}
        self.name = check_name(name) if name else default_name()
        self._named, self._chose_engine = bool(name), isinstance(engine, str) and engine != AUTO
        self.announce = announce
        self.engine, why = select_engine(engine, self.name) if isinstance(engine, str) else (engine, "")
        if why:
            announce(why)
        self.lock = ClusterLock(self.engine.name, self.name)
        self.before_use: list[Callable[[], object]] = []
        """Functions that end what features run on the cluster, called before anything else uses it."""
        asked: dict[str, Any] = {key: values[key] for key in _SHAPE_FIELDS} | {
            "strict": strict or None,
            "volumes": tuple(volumes),
            "hosts": tuple(hosts),
            "env": dict(env or {}),
            "allocation": dict(allocation or {}),
            "data": checked_folders(data or {}),
            "requirements": read_requirements("checked_requirements", requirements) if requirements else (),
        }
        requested = {key: value for key, value in asked.items() if value not in (None, (), {})}
        self.slot = ClusterSlot(engine=self.engine, name=self.name, asked=requested, announce=announce)

    def __getattr__(self, name: str) -> Any:
        """Return a method or property of a feature; see `Feature.cluster`."""
        member = None if name.startswith("_") else find_entry("cluster", name)
        if member is None:
            raise AttributeError(f"'Cluster' object has no attribute {name!r}", name=name, obj=self)
        return member.__get__(self, type(self))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *all_entries("cluster")]

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def info(self) -> ClusterInfo | None:
        """Return the cluster as the engine sees it now; None if there is none."""
        return self.slot.find()

    def existing(self) -> ClusterInfo:
        """Return the cluster as the engine sees it now, which must exist.

        Raises:
            ClusterUnfit: it is not.
        """
        return self.slot.existing()

    def busy(self) -> dict[str, Any] | None:
        """Return who uses it now: `pid`, `purpose`, `since`; None if nobody does."""
        return self.lock.holder()

    def up(self, *, wait_s: float = 0.0) -> tuple[ClusterInfo, bool]:
        """Make the cluster, unless it is there in the same shape; of one that is, start the nodes that were stopped.

        Args:
            wait_s: seconds to wait for somebody who uses it.

        Returns:
            The cluster, and whether it was made now.

        Raises:
            ClusterError: a cluster of this name has another shape, or a node does not start.
            ClusterBusy: somebody uses it.
        """
        with self._held("lab up", wait_s, exclusive=True) as lock:
            before = self.info()
            if (existing := self.slot.find_usable(lock)) is not None:
                return self.slot.start_stopped_nodes(existing), False
            self._warn_of_namesakes()
            return self.slot.make(self._shape(before), run=None), True

    def _shape(self, before: ClusterInfo | None) -> Shape:
        """Return the requested shape, else that of an incomplete cluster, else the defaults."""
        broken = vars(before.shape) if before is not None and before.run is None else {}
        return Shape(**{"nodes": DEFAULT_NODES, **broken, **self.slot.asked})

    def down(self) -> Removed:
        """Remove the cluster or its remains, even while a run uses it; Ctrl-C does not interrupt the removal."""
        with defer_interrupts():
            try:
                with self._held("lab down", removes=True, exclusive=True) as lock:
                    return self.slot.remove(settle=lock.crashed)
            except ClusterError:
                return self.slot.remove(settle=True)

    def dry_run(self, scenarios: Sequence[Scenario], options: RunOptions | None = None) -> list[DryRun]:
        """Return what `run` (one scenario) or `run_all` (several) would do; make, remove, and run nothing.

        Raises:
            ClusterUnfit: the cluster is too small, or not as it was asked for.
        """
        options, made, dry_runs = options or RunOptions(), list[ClusterInfo](), list[DryRun]()
        for plan, cluster in plan_all(scenarios, options, self.slot.asked, self.slot.find_fitting(), self.name):
            new = not cluster.nodes and not any(cluster is earlier for earlier in made)
            made.append(cluster)
            run = None if options.keep else plan.run
            requests = self.engine.requests(cluster.name, cluster.shape, run=run) if new else ()
            dry_runs.append(DryRun(plan=plan, requests=tuple(requests)))
        return dry_runs

    def run(
        self,
        scenario: Scenario | str | Path,
        *,
        args: Sequence[str] = (),
        observer: Observer | None = None,
        options: RunOptions | None = None,
        **fields: Any,
    ) -> Result:
        """Run a scenario, or a plain script, on this cluster.

        Where the cluster is not up, one is made for the run and removed after it.

        Args:
            scenario: a YAML file, a script, a lesson as `@scatter`, or a `Scenario`.
            args: arguments for the script, after those of the scenario.
            observer: watches; see `lab.run.options`.
            options: how to run it; or its fields as keyword arguments, such as `cold=True`.

        Raises:
            ScenarioError: the scenario is not valid.
            ClusterUnfit: the cluster is too small, busy, lost, or not as it was asked for.
            EngineUnavailable: the engine stopped answering before the run began.
        """
        scenario = scenario if isinstance(scenario, Scenario) else open_scenario(Path(scenario))
        scenario = replace(scenario, args=(*scenario.args, *check_option("args", args, "Sequence[str]")))
        options = self.options_of(scenario, replace(options or RunOptions(), **fields))
        with self._held(f"a run of {scenario.name}", options.wait_s) as lock:
            return run_with_rerun(self.slot, self._usable(lock, options), scenario, options, observer or Observer())

    def run_all(
        self,
        scenarios: Sequence[Scenario],
        *,
        observer: Observer | None = None,
        options: RunOptions | None = None,
        started: Callable[[Scenario], None] = lambda _: None,
        ended: Callable[[Scenario, Result | LabError], None] = lambda *_: None,
    ) -> list[Result | LabError]:
        """Run many scenarios one after the other on one warm cluster; if it is not up, one large enough is made.

        A scenario with limits, an image, packages, data or volumes of its own gets its own cluster.

        Args:
            scenarios: what to run.
            observer: watches every run.
            options: how to run them.
            started: called before each.
            ended: called after each with its result, or with what kept it from beginning.

        Returns:
            An outcome for each; after Ctrl-C, or when the engine is gone, for those that had begun.

        Raises:
            ClusterError: the cluster is busy, has another shape than requested, or cannot be made.
            EngineUnavailable: the engine stopped answering.
        """
        options, watcher, slot = options or RunOptions(), observer or Observer(), self.slot
        outcomes: list[Result | LabError] = []
        with self._held(f"{len(scenarios)} runs", options.wait_s) as lock:
            cluster = self._usable(lock, options)
            made_for = None if cluster or options.keep else f"{len(scenarios)}-runs"
            shape = shape_for_all(scenarios, options, slot.asked)
            warm_cluster = WarmCluster(slot=slot, shape=shape, cluster=cluster, made_for=made_for)
            try:
                for scenario, alone in options.in_turn(scenarios):
                    started(scenario)
                    alone = self.options_of(scenario, alone)
                    if has_wishes(scenario):
                        shared = warm_cluster.cluster.shape if warm_cluster.cluster else None
                        run = partial(run_on_own_cluster, slot, scenario, alone, watcher, shared)
                        attempt = RunAttempt.make(scenario, run)
                    else:
                        attempt = warm_cluster.attempt(scenario, alone, watcher)
                    outcomes.append(attempt.error or attempt.result)
                    ended(scenario, outcomes[-1])
                    if warm_cluster.is_last(attempt):
                        break
            finally:
                warm_cluster.clear()
        return outcomes

    def options_of(self, scenario: Scenario, options: RunOptions) -> RunOptions:
        """Return the options of the next run; features can add to them."""
        return options

    def _held(self, purpose: str, wait_s: float = 0.0, **how: bool) -> AbstractContextManager[ClusterLock]:
        """Lock the cluster, after ending what features run on it."""
        for end in self.before_use:
            end()
        return self.lock.held(purpose, wait_s, **how)

    def run_for(self, purpose: str, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        """Run a scenario on this cluster, which stays locked for that purpose."""
        options = self.options_of(scenario, options)
        with self.lock.held(purpose, options.wait_s) as lock:
            return self.slot.run(self._usable(lock), scenario, options, observer)

    def _usable(self, lock: ClusterLock, options: RunOptions | None = None) -> ClusterInfo | None:
        cluster = self.slot.find_usable(lock, remake=True, keep_faults=bool(options and options.keep_faults))
        if cluster is None and self._named:
            meant = did_you_mean(self.name, [info.name for info in self.engine.find()])
            warning = "warning: " if meant else ""
            self.announce(f"{warning}there is no cluster {self.name}{meant}: making one for the run")
            self._warn_of_namesakes()
        return cluster

    def _warn_of_namesakes(self) -> None:
        """Announce other engines that have a cluster of this name, if the user named both a cluster and an engine."""
        for other in available_engines()[0] if self._named and self._chose_engine else ():
            if other.name != self.engine.name and other.find(self.name):
                why = f"the {other.name} engine has another cluster {self.name}: --engine {other.name} uses that one"
                self.announce(f"warning: {why}")
