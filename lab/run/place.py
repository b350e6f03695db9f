"""Where runs happen: the cluster of one name, taken over, made and removed as one run or several need it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.engine.interrupts import uninterrupted
from lab.engine.protocol import Announce, Engine, Removed
from lab.errors import ClusterUnfit, EngineUnavailable, Interrupted, LabError, NodeLost, UsageError, unforeseen
from lab.feature import hook, hooks, load, owners
from lab.frozen import Frozen
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Shape
from lab.plan.limits import FEW_RANKS, NodeCost, files_of_run, refuse_crowd
from lab.plan.plan import Plan, asked_for_own, make_plan, not_made, own_name, present, shape_for, with_asked
from lab.record.write import RecordWriter
from lab.run.collect import Observer
from lab.run.lock import LEASE_S, ClusterLock, faults_file, forget_faults
from lab.run.options import Companion, Job, RunOptions
from lab.spec.reading import did_you_mean, shown
from lab.spec.scenario import Scenario
from lab.words import listing, name_nodes

if TYPE_CHECKING:
    from lab.record.result import Result


class Place(Frozen):
    """A name on an engine, where a cluster is or can be made. The caller holds the lock of that name."""

    engine: Engine
    name: str
    asked: Mapping[str, Any]
    """Fields of the shape that were asked for."""
    announce: Callable[[str], None]
    """Called with each line of progress."""

    def find(self) -> ClusterInfo | None:
        """The cluster as the engine sees it now; None if there is none."""
        for info in self.engine.find(self.name)[:1]:
            as_broken = hook("as_broken") if self._is_broken else None
            return as_broken(info) if as_broken else info
        return None

    @property
    def _is_broken(self) -> bool:
        """Whether something was broken on purpose and not undone: mostly there is nothing to import for that."""
        return faults_file(self.engine.name, self.name).exists()

    def _heal(self, info: ClusterInfo | None, *, keep_faults: bool) -> None:
        """Undo what was broken on purpose, by runs that are dead, and unless that is kept, by `lab fault`."""
        if self._is_broken and (heal := hook("heal")):
            heal(self.engine, self.name, info, self.announce, by_hand=not keep_faults)

    def all_started(self, info: ClusterInfo) -> ClusterInfo:
        """The cluster with every node that was stopped running again."""
        stopped = [node for node in info.nodes if node.state == STOPPED]
        if not stopped:
            return info
        from lab.engine.protocol import PowerControl, capable

        capable(self.engine, PowerControl).start(info, stopped, announce=self.announce)
        return self.existing()

    def existing(self) -> ClusterInfo:
        """The cluster as the engine sees it now, which has to be there.

        Raises:
            ClusterUnfit: it is not.
        """
        found = self.find()
        if found is None:
            meant = did_you_mean(self.name, [info.name for info in self.engine.find()])
            raise ClusterUnfit(f"there is no cluster {self.name}{meant}", "start it with `lab up`, or see `lab status`")
        return found

    def there(self) -> ClusterInfo | None:
        """The cluster, if it can be used as it is; nothing is changed.

        Raises:
            ClusterUnfit: it is not what was asked for; the message says what differs.
        """
        info = self.find()
        if info is None or not info.stays:
            return None
        self._refuse_other_shape(info)
        return info

    def usable(self, lock: ClusterLock, *, remake: bool = False, keep_faults: bool = False) -> ClusterInfo | None:
        """The cluster, if it can be used; remains of one that nobody will come back for are removed.

        With `remake`, one that was to stay and has lost a node is made again. What was broken on purpose is undone
        before; with `keep_faults`, not what `lab fault` did.

        Raises:
            ClusterUnfit: it is not what was asked for; the message says what differs.
        """
        info = self.find()
        if self._is_broken:
            self._heal(info, keep_faults=keep_faults)
            info = self.find()
        fits = info is not None and info.stays and not lock.removal_cut
        if lock.crashed and info is not None and fits:
            from lab.engine.ready import whole

            fits = whole(self.engine, info)
        if info is not None and fits:
            self._refuse_other_shape(info)
            return info
        why = "whoever removed it was killed" if lock.removal_cut else why_unusable(info)
        self._remove_rest(why, settle=lock.crashed)
        if remake and info is not None and info.run is None and info.state == "partial":
            return self.make(replace(info.shape, **self.asked), run=None)
        return None

    def _refuse_other_shape(self, existing: ClusterInfo) -> None:
        asked, has = dict(self.asked), existing.shape
        if "requirements" in asked:  # more than was asked for does no harm
            asked["requirements"] = (*has.requirements, *lacking(self.engine, existing, asked["requirements"]))
        if "data" in asked:
            asked["data"] = {**has.data, **asked["data"]}
        if differences := has.differences(replace(has, **asked)):
            raise ClusterUnfit(
                f"cluster {self.name} is up in another shape ({'; '.join(differences)})",
                "remove it with `lab down`, or make another one with --name",
            )

    def make(self, shape: Shape, run: str | None) -> ClusterInfo:
        """Make the cluster; `run` is the run that will remove it."""
        if shape.nodes < 1:
            raise ClusterUnfit(f"a cluster has at least 1 node, not {shape.nodes}")
        reap(self.engine, self.announce)
        forget_faults(self.engine.name, self.name)
        return self.engine.create(self.name, shape, run=run, announce=self.announce)

    def still_there(self) -> ClusterInfo | None:
        """The cluster, if no node was lost; else what is left of it is removed."""
        info = self.find()
        if info is not None and info.intact:
            return info
        self._remove_rest(not_running(info) if info is not None else "it had no nodes left")
        return None

    def engine_is_gone(self) -> bool:
        """Whether the engine does not answer; a run may have found only that what held its nodes was killed."""
        try:
            self.find()
        except EngineUnavailable:
            return True
        return False

    def remove(self, *, settle: bool = False) -> Removed:
        """Remove all that is there, and with it what was broken on purpose."""
        removed = self.engine.remove(self.name, settle=settle)
        forget_faults(self.engine.name, self.name)
        return removed

    def _remove_rest(self, why: str, *, settle: bool = False) -> None:
        removed = self.remove(settle=settle)
        if removed:
            self.announce(f"removed what was left of cluster {self.name}: {why}")

    def run(self, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        """Run on a cluster, which is made again if it turns out to be broken, or on one that is made for the run."""
        scenario = with_asked(scenario, self.asked)
        if cluster is not None and scenario.requirements:
            refuse_lacking(self.engine, cluster, scenario)
        writer = RecordWriter(options.runs, scenario.name)
        try:
            if cluster is None:
                return self._run_on_own(scenario, options, observer, writer)
            try:
                return self._run_on(cluster, scenario, options, observer, writer)
            except NodeLost as lost:  # a node was restarted, say, or could not be cleaned
                writer.discard()
                self._remove_rest(lost.message)
            writer = RecordWriter(options.runs, scenario.name)
            again = self.make(cluster.shape, run=cluster.run)
            return self._run_on(again, scenario, options, observer, writer)
        finally:
            writer.discard_if_empty()

    def _run_on_own(self, scenario: Scenario, options: RunOptions, observer: Observer, writer: RecordWriter) -> Result:
        """Run on a cluster that is made for the run and removed after it."""
        refuse_foreign_wishes(scenario, self.engine, self.asked, options)
        shape = shape_for(scenario, options, self.asked)
        # refuse what cannot run before anything is made
        make_plan(scenario, writer.run, not_made(shape, self.name), options)
        try:
            cluster = self.make(shape, run=None if options.keep else writer.run)
            return self._run_on(cluster, scenario, options, observer, writer)
        finally:
            if not options.keep:
                self.remove_own()

    def remove_own(self) -> None:
        """Remove a cluster that was made for runs; if that fails, say so."""
        try:
            with uninterrupted():
                self.remove()
        except LabError as error:  # the run has its own verdict
            self.announce(
                f"warning: cluster {self.name} is still there ({error.message}): `lab down --name {self.name}`"
            )

    def _run_on(
        self, cluster: ClusterInfo, scenario: Scenario, options: RunOptions, observer: Observer, writer: RecordWriter
    ) -> Result:
        from lab.run.drive import execute

        plan = make_plan(scenario, writer.run, cluster, options)
        if plan.world_size > FEW_RANKS:
            make_room(plan, self.engine)
        removed_after = cluster.run == writer.run
        of_parts = (load(one.companion)(one, plan, self.engine, cluster, removed=removed_after) for one in plan.parts)
        companions: list[Companion] = [*options.companions, *of_parts]
        job = Job(plan, cluster, self.engine, writer, observer, options, companions)
        try:
            for companion in companions:
                companion.begin()
            there = present(cluster, plan.nnodes, plan.parts)
            channels = self.engine.connect(cluster, [node for node in cluster.nodes if node.name in there])
            try:
                return execute(job, channels)
            finally:
                for channel in channels:
                    channel.close()
        except Exception as error:
            from lab.run.outcome import crash_result

            told = error if isinstance(error, LabError) else unforeseen(error)
            with suppress(LabError):
                crash_result(job, told)
            if told is error or os.environ.get("LAB_DEBUG"):
                raise
            raise told from error
        finally:
            for companion in companions:
                companion.close()
            if not removed_after:
                self._heal(cluster, keep_faults=options.keep_faults)


_STANDSTILLS = ("paused", "halted", "disconnected")
"""States in which a node is there and does not work."""


def why_unusable(info: ClusterInfo | None) -> str:
    """Why what is left of a cluster, or None, cannot be used."""
    if info is None:
        return "it had no nodes left"
    if info.run:
        return f"it was made for run {info.run}, which is dead"
    if info.intact:
        return "a node had not received its agent"
    return not_running(info)


def not_running(info: ClusterInfo) -> str:
    """Which of its nodes do not work."""
    odd: dict[str, list[str]] = {}
    for node in info.nodes:
        if node.state in _STANDSTILLS:
            odd.setdefault(node.state, []).append(node.name)
    if odd:
        return ", ".join(f"{name_nodes(names)} {'was' if len(names) == 1 else 'were'} {s}" for s, names in odd.items())
    running = {node.name for node in info.nodes if node.state in (RUNNING, STOPPED)}
    missing = [name for name in (f"node{rank}" for rank in range(info.shape.nodes)) if name not in running]
    return f"{name_nodes(missing)} of {info.shape.nodes} nodes were not running"


def refuse_foreign_wishes(scenario: Scenario, engine: Engine, asked: Mapping[str, Any], options: RunOptions) -> None:
    """Refuse a scenario file that mounts folders from outside of its own, or names an image that has to be pulled.

    Somebody else may have written the file; what was made in Python is what its author wants.

    Args:
        scenario: what is to run on a cluster that is made for it.
        engine: where.
        asked: fields of the shape of the cluster that whoever calls asked for.
        options: say what is allowed.

    Raises:
        UsageError: it does, and that is not allowed.
    """
    if scenario.source is not None and not options.allow_volumes:
        own, named = scenario.source.resolve().parent, asked.get("data", {})
        mounts = [(one.source, f"at {one.target}{'' if one.read_only else ', writable,'}") for one in scenario.volumes]
        mounts += [(path, f"as data {name}") for name, path in scenario.data.items() if named.get(name) != path]
        outside = [f"{path.resolve()} {how}" for path, how in mounts if not path.resolve().is_relative_to(own)]
        if outside:
            raise UsageError(
                f"{scenario.name} would mount {listing(outside)} in every node, and that is not in its folder",
                "--allow-volumes allows it; whoever can write that scenario could then read what is mounted",
            )
    if not options.pull and not asked.get("image"):
        refuse_absent_image(scenario, engine)


def refuse_absent_image(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario file whose image the engine does not have.

    Raises:
        UsageError: it does not.
    """
    if scenario.source is None or scenario.image is None:
        return
    from lab.engine.protocol import ImageStore

    if isinstance(engine, ImageStore) and not engine.has_image(scenario.image):
        raise UsageError(
            f"{scenario.name} asks for the image {shown(scenario.image)}, which the {engine.name} engine does not have",
            f"`docker pull {scenario.image}` or --pull fetches it; --image names another one",
        )


def reap(engine: Engine, announce: Announce) -> None:
    """Remove the owner's clusters, and what is left of them, that nobody will come back for."""
    from lab.engine.ready import idle_s

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
            with lock.held("removing what a dead command left", removes=True):
                if lock.crashed or (cluster is not None and idle_s(engine, cluster) > LEASE_S):
                    engine.remove(name, settle=True)
                    why = why_unusable(cluster) if cluster else "whoever was making it is dead"
                    announce(f"removed cluster {name}: {why}")
        except LabError as error:  # somebody else is at it, or it cannot be removed: the new cluster is another one
            announce(f"warning: cluster {name}, left by a dead command, is still there: {error.message}")


_THERE = NodeCost(node_bytes=0, shared_bytes=0, node_threads=0)
"""What nodes cost that are up."""


def make_room(plan: Plan, engine: Engine) -> None:
    """Let this process open as many files as the run needs, and refuse more ranks than there is room for.

    Raises:
        ClusterUnfit: there is not; the message says of what, and how many nodes would fit.
    """
    from lab.node.processes import allow_open_files  # few runs have so many ranks

    allowed = allow_open_files(files_of_run(plan.nnodes, plan.nproc_per_node))
    refuse_crowd(plan.nnodes, plan.nproc_per_node, engine.machine().room._replace(open_files=allowed), _THERE)


_EVERY_NODE_HAS = "torch"


def lacking(engine: Engine, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
    """Those of some requirements that the nodes do not meet; they are asked only if the cluster was not made for them.

    Raises:
        LabError: the nodes do not say what they have.
    """
    known = {*cluster.shape.requirements, _EVERY_NODE_HAS}
    open_ones = [one for one in requirements if one not in known]
    if not open_ones:
        return ()
    from lab.engine.packages import package_store

    return package_store(engine).lacking(cluster, open_ones)


def refuse_lacking(engine: Engine, cluster: ClusterInfo, scenario: Scenario) -> None:
    """Refuse a cluster whose nodes lack a package: nothing is installed into nodes that others may use.

    Raises:
        ClusterUnfit: one is lacking.
    """
    missing = lacking(engine, cluster, scenario.requirements)
    if missing:
        raise ClusterUnfit(
            f"{scenario.name} needs {listing(missing)}, which cluster {cluster.name} does not have",
            "`lab down`, then run it without a cluster or after `lab up --requirements FILE`; or use another --name",
        )


class RunAttempt(Frozen):
    """One attempt to run a scenario: its result, or what kept it from beginning."""

    result: Result
    error: LabError | None = None
    """What kept it from beginning."""
    took_s: float = 0.0
    """Seconds with all that belongs to it, but for making its cluster."""

    @classmethod
    def make(cls, scenario: Scenario, run: Callable[[], Result]) -> RunAttempt:
        """Run a scenario, one of many.

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
        """An attempt that did not come to a run."""
        from lab.record.result import Result

        reason, code = error.message, error.exit_code
        result = Result(verdict="error", reason=reason, scenario=scenario.name, exit_code=code, duration_s=None)
        return cls(result=result, error=error, took_s=took_s)

    def complete(self) -> Result:
        """The result of the run.

        Raises:
            LabError: it did not begin.
        """
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def hint(self) -> str:
        """What to do about an error."""
        return self.error.hint if self.error else ""


class ClusterSlot:
    """A place with its warm cluster, which is there, or is made when a run needs it, and again where it broke.

    Args:
        place: where.
        shape: of a cluster that is made.
        cluster: the one that is there; None: one has to be made.
        made_for: what one is made for that `clear` removes; None: it stays.
    """

    def __init__(self, *, place: Place, shape: Shape, cluster: ClusterInfo | None = None, made_for: str | None) -> None:
        self.place, self.shape, self.cluster, self.made_for = place, shape, cluster, made_for

    def make_ready(self) -> ClusterInfo:
        """Have the cluster there, with all its nodes running.

        Raises:
            LabError: it cannot be made.
        """
        intact = self.place.still_there() if self.cluster else None
        wanted = self.cluster.shape if self.cluster else self.shape
        self.cluster = intact or self.place.make(wanted, self.made_for)
        return self.cluster

    def attempt(self, scenario: Scenario, options: RunOptions, observer: Observer) -> RunAttempt:
        """Run a scenario on the cluster; see `run_one`.

        Raises:
            EngineUnavailable: the engine does not answer.
            LabError: the cluster cannot be made.
        """
        cluster = self.make_ready()
        return RunAttempt.make(scenario, lambda: run_one(self.place, cluster, scenario, options, observer))

    def is_last(self, attempt: RunAttempt) -> bool:
        """Whether other runs are not wanted after this one, or cannot be had."""
        code = attempt.result.exit_code
        return code == Interrupted.exit_code or (code == EngineUnavailable.exit_code and self.place.engine_is_gone())

    def clear(self) -> None:
        """Remove the cluster, unless it is to stay."""
        if self.made_for is not None:
            self.place.remove_own()
            self.cluster = None


def run_one(
    place: Place, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer
) -> Result:
    """Run a scenario on a cluster, or on one that is made for it.

    One whose faults made it fail is run once more without them, where it says so; then that counts.

    Raises:
        LabError: it could not begin.
    """
    first = place.run(cluster, scenario, options, observer)
    again = _once_more(scenario, options) if first.verdict == "failed" else None
    if again is None:
        return first
    if cluster is not None:
        cluster = place.still_there() or place.make(cluster.shape, cluster.run)
    place.announce(f"{scenario.name} failed under its faults, and is run once more without them")
    return place.run(cluster, *again, observer)


def run_apart(
    place: Place, scenario: Scenario, options: RunOptions, observer: Observer, shared: Shape | None
) -> Result:
    """Run one scenario of many on a cluster that it gets for itself, which is otherwise as the shared one.

    Raises:
        LabError: it could not begin.
    """
    asked = {key: value for key, value in asked_for_own(scenario, place.asked, shared).items() if value}
    place = replace(place, name=own_name(place.name), asked=asked)
    with ClusterLock(place.engine.name, place.name).held(f"a run of {scenario.name}", options.wait_s) as lock:
        cluster = place.usable(lock, remake=True, keep_faults=options.keep_faults)
        return run_one(place, cluster, scenario, options, observer)


def _once_more(scenario: Scenario, options: RunOptions) -> tuple[Scenario, RunOptions] | None:
    """What is run once more where a scenario fails; None: nothing is."""
    for feature in owners(scenario.extra):
        if "once_more" in feature.hooks:
            again: tuple[Scenario, RunOptions] | None = load(feature.hooks["once_more"])(scenario, options)
            return again
    return None
