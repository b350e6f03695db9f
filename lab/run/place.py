"""Where runs happen: the cluster of one name, taken over, made and removed as runs need it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.engine.interrupts import uninterrupted
from lab.engine.protocol import Engine, Removed
from lab.errors import ClusterUnfit, EngineUnavailable, LabError, NodeLost, unforeseen
from lab.feature import hook, load
from lab.frozen import dataclass
from lab.plan.cluster import STOPPED, ClusterInfo, Shape
from lab.plan.fit import not_made, shape_for, with_asked
from lab.plan.plan import make_plan
from lab.plan.present import present
from lab.plan.room import FEW_RANKS
from lab.record.write import RecordWriter
from lab.run.foreign_wishes import refuse_foreign_wishes
from lab.run.lock import ClusterLock, faults_file, forget_faults
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.unusable import not_running, why_unusable
from lab.spec.reading import did_you_mean
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.plan.plan import Plan
    from lab.record.result import Result
    from lab.run.companion import Companion


@dataclass(frozen=True, kw_only=True)
class Place:
    """A name on an engine, where a cluster is or can be made. The caller holds the lock of that name."""

    engine: Engine
    name: str
    asked: Mapping[str, Any]
    """Fields of the shape that were asked for."""
    announce: Callable[[str], None]
    """Called with each line of progress."""

    def find(self) -> ClusterInfo | None:
        """The cluster as the engine sees it now; None if there is none."""
        found = self.engine.find(self.name)
        if found and self._broken:
            as_broken = hook("as_broken")
            return as_broken(found[0]) if as_broken else found[0]
        return found[0] if found else None

    @property
    def _broken(self) -> bool:
        """Whether something was broken on purpose and not undone: mostly there is nothing to import for that."""
        return faults_file(self.engine.name, self.name).exists()

    def _heal(self, info: ClusterInfo | None, *, keep_faults: bool) -> None:
        """Undo what was broken on purpose, by runs that are dead, and unless that is kept, by `lab fault`."""
        heal = hook("heal") if self._broken else None
        if heal:
            heal(self.engine, self.name, info, self.announce, by_hand=not keep_faults)

    def all_started(self, info: ClusterInfo) -> ClusterInfo:
        """The cluster with every node that was stopped running again."""
        stopped = [node for node in info.nodes if node.state == STOPPED]
        if not stopped:
            return info
        from lab.engine.capability import PowerControl, capable

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
        if self._broken:
            self._heal(info, keep_faults=keep_faults)
            info = self.find()
        fits = info is not None and info.stays and not lock.removal_cut
        if info is not None and fits and (not lock.crashed or self._whole(info)):
            self._refuse_other_shape(info)
            return info
        why = "whoever removed it was killed" if lock.removal_cut else why_unusable(info)
        self._remove_rest(why, settle=lock.crashed)
        if remake and info is not None and info.run is None and info.state == "partial":
            return self.make(replace(info.shape, **self.asked), run=None)
        return None

    def _whole(self, info: ClusterInfo) -> bool:
        from lab.engine.ready import whole

        return whole(self.engine, info)

    def _refuse_other_shape(self, existing: ClusterInfo) -> None:
        asked, has = dict(self.asked), existing.shape
        if "requirements" in asked:  # more than was asked for does no harm
            from lab.run.packages import lacking

            asked["requirements"] = (*has.requirements, *lacking(self.engine, existing, asked["requirements"]))
        if "data" in asked:
            asked["data"] = {**has.data, **asked["data"]}
        wanted = replace(has, **asked)
        differences = existing.shape.differences(wanted)
        if differences:
            raise ClusterUnfit(
                f"cluster {self.name} is up in another shape ({'; '.join(differences)})",
                "remove it with `lab down`, or make another one with --name",
            )

    def tell_that_one_is_made(self) -> None:
        """Say that there is no cluster of this name yet, and which one may have been meant."""
        meant = did_you_mean(self.name, [info.name for info in self.engine.find()])
        self.announce(f"{'warning: ' if meant else ''}there is no cluster {self.name}{meant}: making one for the run")

    def make(self, shape: Shape, run: str | None) -> ClusterInfo:
        """Make the cluster; `run` is the run that will remove it."""
        if shape.nodes < 1:
            raise ClusterUnfit(f"a cluster has at least 1 node, not {shape.nodes}")
        from lab.run.reap import reap

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
        self._warn_of(removed)

    def _warn_of(self, removed: Removed) -> None:
        for path in removed.stuck:
            self.announce(f"warning: {path} cannot be removed: it holds something that is not yours to remove")
        for host in removed.later:
            self.announce(f"host {host} does not answer: what is left on it is removed when it is back")

    def run(self, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        """Run on a cluster, which is made again if it turns out to be broken, or on one that is made for the run."""
        scenario = with_asked(scenario, self.asked)
        if cluster is not None and scenario.requirements:
            from lab.run.packages import refuse_lacking

            refuse_lacking(self.engine, cluster, scenario)
        writer = RecordWriter(options.runs, scenario.name)
        try:
            if cluster is not None:
                try:
                    return self._run_on(cluster, scenario, options, observer, writer)
                except NodeLost as lost:  # a node was restarted, say, or could not be cleaned
                    writer.discard()
                    self._remove_rest(lost.message)
                    writer = RecordWriter(options.runs, scenario.name)
                    again = self.make(cluster.shape, run=cluster.run)
                    return self._run_on(again, scenario, options, observer, writer)
            return self._run_on_own(scenario, options, observer, writer)
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
                self._warn_of(self.remove())
        except LabError as error:  # the run has its own verdict
            self.announce(
                f"warning: cluster {self.name} is still there ({error.message}): `lab down --name {self.name}`"
            )

    def _run_on(
        self,
        cluster: ClusterInfo,
        scenario: Scenario,
        options: RunOptions,
        observer: Observer,
        writer: RecordWriter,
    ) -> Result:
        from lab.run.execute import execute

        plan = make_plan(scenario, writer.run, cluster, options)
        if plan.world_size > FEW_RANKS:
            from lab.run.crowd import make_room

            make_room(plan, self.engine)
        removed_after = cluster.run == writer.run
        companions = self._companions(plan, cluster, removed_after=removed_after)
        try:
            for companion in companions:
                companion.begin()
            there = present(cluster, plan.nnodes, plan.parts)
            channels = self.engine.connect(cluster, [node for node in cluster.nodes if node.name in there])
            try:
                return execute(plan, cluster, self.engine, channels, writer, observer, options, companions)
            finally:
                for channel in channels:
                    channel.close()
        except Exception as error:
            from lab.run.outcome import crash_result

            told = error if isinstance(error, LabError) else unforeseen(error)
            with suppress(LabError):
                crash_result(plan, cluster, writer, told)
            if told is error or os.environ.get("LAB_DEBUG"):
                raise
            raise told from error
        finally:
            for companion in companions:
                companion.close()
            if not removed_after:
                self._heal(cluster, keep_faults=options.keep_faults)

    def _companions(self, plan: Plan, cluster: ClusterInfo, *, removed_after: bool) -> list[Companion]:
        """What goes along with the run; most have nothing."""
        return [load(part.companion)(part, plan, self.engine, cluster, removed=removed_after) for part in plan.parts]
