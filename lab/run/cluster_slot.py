"""The cluster of one name on an engine: reuse, create, remove, and recreate it for one or more runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.engine.interrupts import defer_interrupts
from lab.engine.protocol import Announce, Engine, ImageStore, PowerControl, Removed, require_capability
from lab.engine.ready import closing_channels, have_all_agents, idle_s
from lab.errors import ClusterUnfit, EngineUnavailable, Interrupted, LabError, NodeLost, UsageError, wrap_internal_error
from lab.feature import find_hook, find_hook_of, hooks, import_entry
from lab.frozen import Frozen
from lab.plan import plan as planning
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Shape
from lab.plan.limits import FEW_RANKS, NodeCost, files_of_run, refuse_excess_nodes
from lab.record.write import RecordWriter
from lab.run.collect import Observer
from lab.run.lock import LEASE_S, ClusterLock, faults_file, forget_faults
from lab.run.options import Companion, Job, RunOptions
from lab.spec.reading import clip_repr, did_you_mean
from lab.spec.scenario import Scenario
from lab.words import group_pairs, join_words, name_nodes

if TYPE_CHECKING:
    from lab.record.result import Result


class ClusterSlot(Frozen):
    """A name on an engine, for which a cluster exists or can be created. The caller holds the lock of that name."""

    engine: Engine
    name: str
    asked: Mapping[str, Any]
    """Fields of the shape that the user asked for."""
    announce: Callable[[str], None]
    """Called with each line of progress."""

    def find(self) -> ClusterInfo | None:
        """Return the cluster as the engine reports it now, or None."""
        for info in self.engine.find(self.name)[:1]:
            as_broken = find_hook("as_broken") if self._is_broken else None
            return as_broken(info) if as_broken else info
        return None

    @property
    def _is_broken(self) -> bool:
        """Whether faults were injected and not undone; usually nothing has to be imported for this."""
        return faults_file(self.engine.name, self.name).exists()

    def _heal(self, info: ClusterInfo | None, *, keep_faults: bool) -> None:
        """Undo faults that dead runs left; unless `keep_faults`, also those of `lab fault`."""
        if self._is_broken and (heal := find_hook("heal")):
            heal(self.engine, self.name, info, self.announce, by_hand=not keep_faults)

    def start_stopped_nodes(self, info: ClusterInfo) -> ClusterInfo:
        """Start every stopped node, and return the cluster."""
        if not (stopped := [node for node in info.nodes if node.state == STOPPED]):
            return info
        require_capability(self.engine, PowerControl).start(info, stopped, announce=self.announce)
        return self.existing()

    def existing(self) -> ClusterInfo:
        """Return the cluster, which has to exist.

        Raises:
            ClusterUnfit: there is none.
        """
        if (cluster := self.find()) is None:
            meant = did_you_mean(self.name, [info.name for info in self.engine.find()])
            raise ClusterUnfit(f"there is no cluster {self.name}{meant}", "start it with `lab up`, or see `lab status`")
        return cluster

    def find_fitting(self) -> ClusterInfo | None:
        """Return the cluster if it can be used as it is; change nothing.

        Raises:
            ClusterUnfit: it has another shape than the user asked for; the message names the differences.
        """
        if (info := self.find()) is None or not info.stays:
            return None
        self._refuse_other_shape(info)
        return info

    def find_usable(self, lock: ClusterLock, *, remake: bool = False, keep_faults: bool = False) -> ClusterInfo | None:
        """Return the cluster if it can be used; remove the remains of a dead one.

        Injected faults are undone first.

        Args:
            lock: held by the caller; tells how the last holder ended.
            remake: create a permanent cluster again if it has lost a node.
            keep_faults: keep what `lab fault` injected.

        Raises:
            ClusterUnfit: it has another shape than the user asked for; the message names the differences.
        """
        info = self.find()
        if self._is_broken:
            self._heal(info, keep_faults=keep_faults)
            info = self.find()
        fits = info is not None and info.stays and not lock.removal_cut
        if lock.crashed and info is not None and fits:
            fits = have_all_agents(self.engine, info)
        if info is not None and fits:
            self._refuse_other_shape(info)
            return info
        why = "the command that removed it was killed" if lock.removal_cut else explain_unusable(info)
        self._remove_rest(why, settle=lock.crashed)
        if remake and info is not None and info.run is None and info.state == "partial":
            return self.make(replace(info.shape, **self.asked), run=None)
        return None

    def _refuse_other_shape(self, existing: ClusterInfo) -> None:
        asked, has = dict(self.asked), existing.shape
        if "requirements" in asked:  # extra packages do no harm
            missing = find_missing_requirements(self.engine, existing, asked["requirements"])
            asked["requirements"] = (*has.requirements, *missing)
        if "data" in asked:
            asked["data"] = {**has.data, **asked["data"]}
        if differences := has.differences(replace(has, **asked)):
            hint = f"remove it with `lab down --name {self.name}`, or make one with another --name"
            raise ClusterUnfit(f"cluster {self.name} has other settings ({'; '.join(differences)})", hint)

    def make(self, shape: Shape, run: str | None) -> ClusterInfo:
        """Create the cluster; `run` is the run that will remove it, or None for a permanent cluster."""
        if shape.nodes < 1:
            raise ClusterUnfit(f"a cluster needs at least 1 node, not {shape.nodes}")
        remove_orphan_clusters(self.engine, self.announce)
        forget_faults(self.engine.name, self.name)
        return self.engine.create(self.name, shape, run=run, announce=self.announce)

    def find_intact(self) -> ClusterInfo | None:
        """Return the cluster if it has lost no node; else remove its remains."""
        if (info := self.find()) is not None and info.intact:
            return info
        self._remove_rest(describe_missing_nodes(info) if info is not None else "it had no nodes left")
        return None

    def is_engine_gone(self) -> bool:
        """Return whether the engine does not answer; a run may only have noticed that its nodes were killed."""
        try:
            self.find()
        except EngineUnavailable:
            return True
        return False

    def remove(self, *, settle: bool = False) -> Removed:
        """Remove the cluster and the journal of its faults."""
        removed = self.engine.remove(self.name, settle=settle)
        forget_faults(self.engine.name, self.name)
        return removed

    def _remove_rest(self, why: str, *, settle: bool = False) -> None:
        if self.remove(settle=settle):
            self.announce(f"removed the remains of cluster {self.name}: {why}")

    def run(self, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        """Run on a cluster, and recreate it once if it is broken; None: create one for this run."""
        scenario = planning.with_asked(scenario, self.asked)
        if cluster is not None and scenario.requirements:
            refuse_missing_requirements(self.engine, cluster, scenario)
        writer = RecordWriter(options.runs, scenario.name)
        try:
            if cluster is None:
                return self._run_on_own(scenario, options, observer, writer)
            try:
                return self._run_on(cluster, scenario, options, observer, writer)
            except NodeLost as lost:  # for example, a node was restarted or could not be cleaned
                writer.discard()
                self._remove_rest(lost.message)
            writer = RecordWriter(options.runs, scenario.name)
            return self._run_on(self.make(cluster.shape, run=cluster.run), scenario, options, observer, writer)
        finally:
            writer.discard_if_empty()

    def _run_on_own(self, scenario: Scenario, options: RunOptions, observer: Observer, writer: RecordWriter) -> Result:
        """Run on a cluster that is created for the run and removed after it."""
        refuse_foreign_wishes(scenario, self.engine, self.asked, options)
        shape = planning.shape_for(scenario, options, self.asked)
        # refuse what cannot run before creating anything
        planning.make_plan(scenario, writer.run, planning.unmade_cluster(shape, self.name), options)
        try:
            cluster = self.make(shape, run=None if options.keep else writer.run)
            return self._run_on(cluster, scenario, options, observer, writer)
        finally:
            if not options.keep:
                self.remove_own()

    def remove_own(self) -> None:
        """Remove a cluster that was created for runs; announce a failure instead of raising it."""
        try:
            with defer_interrupts():
                self.remove()
        except LabError as error:  # the run has its own verdict
            name = self.name
            self.announce(f"warning: cluster {name} is still there ({error.message}): `lab down --name {name}`")

    def _run_on(
        self, cluster: ClusterInfo, scenario: Scenario, options: RunOptions, observer: Observer, writer: RecordWriter
    ) -> Result:
        from lab.run.drive import run_job

        plan = planning.make_plan(scenario, writer.run, cluster, options)
        if plan.world_size > FEW_RANKS:
            refuse_over_capacity(plan, self.engine)
        removed = cluster.run == writer.run
        of_parts = (import_entry(one.companion)(one, plan, self.engine, cluster, removed=removed) for one in plan.parts)
        companions: list[Companion] = [*options.companions, *of_parts]
        job = Job(plan, cluster, self.engine, writer, observer, options, companions)
        try:
            for companion in companions:
                companion.before_run()
            node_names = planning.list_present_nodes(cluster, plan.nnodes, plan.parts)
            nodes = [node for node in cluster.nodes if node.name in node_names]
            with closing_channels(self.engine.connect(cluster, nodes)) as channels:
                return run_job(job, channels)
        except Exception as error:
            from lab.run.outcome import crash_result

            lab_error = error if isinstance(error, LabError) else wrap_internal_error(error)
            with suppress(LabError):
                crash_result(job, lab_error)
            if lab_error is error or os.environ.get("LAB_DEBUG"):
                raise
            raise lab_error from error
        finally:
            for companion in companions:
                companion.close()
            if not removed:
                self._heal(cluster, keep_faults=options.keep_faults)


_STANDSTILLS = ("paused", "halted", "disconnected")
"""States of a node that exists but does not work."""


def explain_unusable(info: ClusterInfo | None) -> str:
    """Explain why the remains of a cluster, or None, cannot be used."""
    if info is None:
        return "it had no nodes left"
    if info.run:
        return f"it was made for run {info.run}, which is dead"
    return (
        "a node had not received its agent, or one of another version" if info.intact else describe_missing_nodes(info)
    )


def describe_missing_nodes(info: ClusterInfo) -> str:
    """Describe which of its nodes do not work."""
    if states := group_pairs((node.state, node.name) for node in info.nodes if node.state in _STANDSTILLS).items():
        return ", ".join(f"{name_nodes(names)} {'was' if len(names) == 1 else 'were'} {s}" for s, names in states)
    running = {node.name for node in info.nodes if node.state in (RUNNING, STOPPED)}
    missing = [name for name in (f"node{rank}" for rank in range(info.shape.nodes)) if name not in running]
    return f"{name_nodes(missing)} {'was' if len(missing) == 1 else 'were'} not running"


def refuse_foreign_wishes(scenario: Scenario, engine: Engine, asked: Mapping[str, Any], options: RunOptions) -> None:
    """Refuse a scenario file that mounts folders outside its own, or whose image has to be pulled.

    Another person may have written the file; a scenario made in Python is trusted.

    Args:
        scenario: what is to run on a cluster that is created for it.
        engine: where.
        asked: fields of the cluster's shape that the user asked for.
        options: say what is allowed.

    Raises:
        UsageError: the file does so without permission.
    """
    if scenario.source is not None and not options.allow_volumes:
        own, named = scenario.source.resolve().parent, asked.get("data", {})
        mounts = [(one.source, f"at {one.target}{'' if one.read_only else ', writable,'}") for one in scenario.volumes]
        mounts += [(path, f"as data {name}") for name, path in scenario.data.items() if named.get(name) != path]
        outside = [f"{path.resolve()} {how}" for path, how in mounts if not path.resolve().is_relative_to(own)]
        if outside:
            why = f"{scenario.name} mounts folders from outside its own folder in every node: {join_words(outside)}"
            hint = "--allow-volumes allows this; the author of the scenario can then read the mounted files"
            raise UsageError(why, hint)
    if not options.pull and not asked.get("image"):
        refuse_absent_image(scenario, engine)


def refuse_absent_image(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario file whose image the engine does not have.

    Raises:
        UsageError: the engine lacks the image.
    """
    if scenario.source is None or scenario.image is None:
        return
    if isinstance(engine, ImageStore) and not engine.has_image(scenario.image):
        image = clip_repr(scenario.image)
        why = f"{scenario.name} asks for the image {image}, which the {engine.name} engine does not have"
        raise UsageError(why, f"`docker pull {scenario.image}` or --pull fetches it; --image names another one")


def remove_orphan_clusters(engine: Engine, announce: Announce) -> None:
    """Remove the owner's clusters, and their remains, that no process will use or remove any more."""
    clusters = {info.name: info for info in engine.find()}
    temporary = [*(name for name, info in clusters.items() if info.run is not None), *engine.nodeless()]
    for remove_orphans in hooks("remove_orphans"):
        orphans = remove_orphans(engine, dict.fromkeys((*temporary, *clusters)), announce)
        temporary = [name for name in temporary if name not in orphans]
    for name in temporary:
        cluster, lock = clusters.get(name), ClusterLock(engine.name, name)
        if lock.holder() is not None:
            continue
        try:
            with lock.held("the removal of a dead command's cluster", removes=True):
                if lock.crashed or (cluster is not None and idle_s(engine, cluster) > LEASE_S):
                    engine.remove(name, settle=True)
                    why = explain_unusable(cluster) if cluster else "the command that made it is dead"
                    announce(f"removed cluster {name}: {why}")
        except LabError as error:  # the new cluster does not need its removal
            announce(f"warning: cannot remove cluster {name} of a dead command: {error.message}")


_RUNNING_NODES = NodeCost(node_bytes=0, shared_bytes=0, node_threads=0)
"""Nodes that already run cost nothing more."""


def refuse_over_capacity(plan: planning.Plan, engine: Engine) -> None:
    """Raise this process's limit of open files, and refuse more ranks than the machine has capacity for.

    Raises:
        ClusterUnfit: the capacity is too small; the message names the resource, and how many nodes would fit.
    """
    from lab.node.processes import allow_open_files  # few runs have so many ranks

    allowed = allow_open_files(files_of_run(plan.nnodes, plan.nproc_per_node))
    capacity = engine.machine().capacity._replace(open_files=allowed)
    refuse_excess_nodes(plan.nnodes, plan.nproc_per_node, capacity, _RUNNING_NODES)


_EVERY_NODE_HAS = "torch"


def find_missing_requirements(engine: Engine, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements that the nodes do not meet. Ask the nodes only if the cluster was not made for them.

    Raises:
        LabError: the nodes do not report their packages.
    """
    open_ones = [one for one in requirements if one not in (*cluster.shape.requirements, _EVERY_NODE_HAS)]
    if not open_ones:
        return ()
    from lab.engine.packages import package_store

    return package_store(engine).find_missing(cluster, open_ones)


def refuse_missing_requirements(engine: Engine, cluster: ClusterInfo, scenario: Scenario) -> None:
    """Refuse a cluster whose nodes lack a package. Nothing is installed into nodes that others may use.

    Raises:
        ClusterUnfit: a package is missing.
    """
    if missing := find_missing_requirements(engine, cluster, scenario.requirements):
        why = f"{scenario.name} needs {join_words(missing)}, which cluster {cluster.name} does not have"
        own = f"--name {cluster.name}"
        hint = f"`lab down {own}`, then run it without a cluster or after `lab up {own} --requirements FILE`"
        raise ClusterUnfit(why, hint)


class RunAttempt(Frozen):
    """One attempt to run a scenario: its result, or the error that kept it from beginning."""

    result: Result
    error: LabError | None = None
    """Why it did not begin."""
    took_s: float = 0.0
    """Seconds for the whole attempt, without creating its cluster."""

    @classmethod
    def make(cls, scenario: Scenario, run: Callable[[], Result]) -> RunAttempt:
        """Run one scenario of several, and keep its error.

        Raises:
            EngineUnavailable: the engine does not answer.
        """
        began = time.monotonic()
        try:
            return cls(result=run(), took_s=time.monotonic() - began)
        except (EngineUnavailable, Interrupted):
            raise
        except LabError as error:
            return cls.failed(scenario, error, time.monotonic() - began)

    @classmethod
    def failed(cls, scenario: Scenario, error: LabError, took_s: float = 0.0) -> RunAttempt:
        """Return an attempt whose run did not begin."""
        from lab.record.result import Result

        reason, code = error.message, error.exit_code
        result = Result(verdict="error", reason=reason, scenario=scenario.name, exit_code=code, duration_s=None)
        return cls(result=result, error=error, took_s=took_s)

    def complete(self) -> Result:
        """Return the result of the run.

        Raises:
            LabError: the run did not begin.
        """
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def hint(self) -> str:
        """The hint of its error."""
        return self.error.hint if self.error else ""


class WarmCluster:
    """A cluster slot with a cluster that stays up between runs. It is created on first use, and again if it breaks.

    Args:
        slot: engine and name of the cluster.
        shape: of a cluster that has to be created.
        cluster: the existing one; None: create one.
        made_for: the run or command for which it is created; `clear` removes it then. None: it stays.
    """

    def __init__(
        self, *, slot: ClusterSlot, shape: Shape, cluster: ClusterInfo | None = None, made_for: str | None
    ) -> None:
        self.slot, self.shape, self.cluster, self.made_for = slot, shape, cluster, made_for

    def ensure_ready(self) -> ClusterInfo:
        """Return the cluster with all its nodes running; create it if necessary.

        Raises:
            LabError: it cannot be created.
        """
        intact = self.slot.find_intact() if self.cluster else None
        self.cluster = intact or self.slot.make(self.cluster.shape if self.cluster else self.shape, self.made_for)
        return self.cluster

    def attempt(self, scenario: Scenario, options: RunOptions, observer: Observer) -> RunAttempt:
        """Run a scenario on the cluster; see `run_with_rerun`.

        Raises:
            EngineUnavailable: the engine does not answer.
            LabError: the cluster cannot be created.
        """
        cluster = self.ensure_ready()
        return RunAttempt.make(scenario, lambda: run_with_rerun(self.slot, cluster, scenario, options, observer))

    def is_last(self, attempt: RunAttempt) -> bool:
        """Return whether other runs are unwanted or impossible after this attempt."""
        code = attempt.result.exit_code
        return code == Interrupted.exit_code or (code == EngineUnavailable.exit_code and self.slot.is_engine_gone())

    def clear(self) -> None:
        """Remove the cluster, unless it is permanent."""
        if self.made_for is not None:
            self.slot.remove_own()
            self.cluster = None


def run_with_rerun(
    slot: ClusterSlot, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer
) -> Result:
    """Run a scenario on a cluster, or on one that is created for it.

    If it fails under its faults and asks for it, run it again without them; the second result counts.

    Raises:
        LabError: the run could not begin.
    """
    first = slot.run(cluster, scenario, options, observer)
    plan_rerun = find_hook_of(scenario.extra, "rerun") if first.verdict == "failed" else None
    again = plan_rerun(scenario, options) if plan_rerun else None
    if again is None:
        return first
    if cluster is not None:
        cluster = slot.find_intact() or slot.make(cluster.shape, cluster.run)
    slot.announce(f"{scenario.name} failed under its faults; running it again without them")
    scenario, options = again
    return slot.run(cluster, scenario, options, observer)


def run_on_own_cluster(
    slot: ClusterSlot, scenario: Scenario, options: RunOptions, observer: Observer, shared: Shape | None
) -> Result:
    """Run one scenario of several on its own cluster, which otherwise has the shape of the shared one.

    Raises:
        LabError: the run could not begin.
    """
    asked = {key: value for key, value in planning.shape_fields_for_own(scenario, slot.asked, shared).items() if value}
    slot = replace(slot, name=planning.own_name(slot.name), asked=asked)
    with ClusterLock(slot.engine.name, slot.name).held(f"a run of {scenario.name}", options.wait_s) as lock:
        cluster = slot.find_usable(lock, remake=True, keep_faults=options.keep_faults)
        return run_with_rerun(slot, cluster, scenario, options, observer)
