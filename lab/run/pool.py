"""One warm cluster for runs that are made one after the other: made for the first, and again where it broke."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lab.errors import EngineUnavailable, Interrupted, LabError
from lab.feature import load, owners
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.fit import asked_for_own, own_name, shape_for
from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place, refuse_foreign_wishes
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.record.result import Result


@dataclass(kw_only=True)
class ClusterSlot:
    """A place with its cluster, which is there, or is made when a run needs it."""

    place: Place
    shape: Shape
    """Of a cluster that is made here."""
    cluster: ClusterInfo | None = None
    """The one that is there; None: one has to be made."""
    made_for: str | None
    """What one is made for that `clear` removes; None: it stays."""

    def make_ready(self) -> ClusterInfo:
        """Have the cluster there, with all its nodes running.

        Raises:
            LabError: it cannot be made.
        """
        intact = self.place.still_there() if self.cluster else None
        wanted = self.cluster.shape if self.cluster else self.shape
        self.cluster = intact or self.place.make(wanted, self.made_for)
        return self.cluster

    def try_run(self, scenario: Scenario, options: RunOptions, observer: Observer) -> Result | LabError:
        """Return the result of a run, or what kept it from beginning.

        A scenario whose faults made it fail is run once more without them, where it says so; then that counts.

        Raises:
            EngineUnavailable: the engine does not answer.
            LabError: the cluster cannot be made.
        """
        cluster = self.make_ready()
        first = catch_error(lambda: self.place.run(cluster, scenario, options, observer))
        again = None if isinstance(first, LabError) or first.verdict != "failed" else _once_more(scenario, options)
        if again is None:
            return first
        cluster = self.make_ready()
        self.place.announce(f"{scenario.name} failed under its faults, and is run once more without them")
        return catch_error(lambda: self.place.run(cluster, *again, observer))

    def is_last(self, outcome: Result | LabError) -> bool:
        """Whether other runs are not wanted after this one, or cannot be had."""
        if outcome.exit_code == Interrupted.exit_code:
            return True
        return outcome.exit_code == EngineUnavailable.exit_code and self.place.engine_is_gone()

    def clear(self) -> None:
        """Remove the cluster, unless it is to stay."""
        if self.made_for is not None:
            self.place.remove_own()
            self.cluster = None


def run_one(
    place: Place, cluster: ClusterInfo | None, scenario: Scenario, options: RunOptions, observer: Observer
) -> Result:
    """Run a scenario, and where it says so once more without its faults, on a cluster or on one that is made for it.

    Raises:
        LabError: it could not begin.
    """
    if _once_more(scenario, options) is None:
        return place.run(cluster, scenario, options, observer)
    if cluster is None:
        refuse_foreign_wishes(scenario, place.engine, place.asked, options)
    made_for = None if cluster or options.keep else scenario.name
    shape = shape_for(scenario, options, place.asked)
    slot = ClusterSlot(place=place, shape=shape, cluster=cluster, made_for=made_for)
    try:
        outcome = slot.try_run(scenario, options, observer)
    finally:
        slot.clear()
    if isinstance(outcome, LabError):
        raise outcome
    return outcome


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


def catch_error(run: Callable[[], Result]) -> Result | LabError:
    """Return the result of one run of many, or what kept it from beginning.

    Raises:
        EngineUnavailable: the engine does not answer.
    """
    try:
        return run()
    except (EngineUnavailable, Interrupted):
        raise
    except LabError as error:
        return error


def _once_more(scenario: Scenario, options: RunOptions) -> tuple[Scenario, RunOptions] | None:
    """What is run once more where a scenario fails; None: nothing is."""
    for feature in owners(scenario.extra):
        if "once_more" in feature.hooks:
            again: tuple[Scenario, RunOptions] | None = load(feature.hooks["once_more"])(scenario, options)
            return again
    return None
