"""Several runs that are made one after the other on one warm cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lab.errors import EngineUnavailable, Interrupted, LabError
from lab.feature import load, owners
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import asked_for_own, own_name, shape_for
from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place, refuse_foreign_wishes
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.record.result import Result


@dataclass(kw_only=True)
class Several:
    """Runs on the cluster of a place: it is made for the first of them, and again where it broke."""

    place: Place
    cluster: ClusterInfo | None
    """The one that is there; None: one has to be made."""
    made_for: str | None
    """What one is made for that `end` removes; None: it stays."""

    def outcome(
        self, scenario: Scenario, options: RunOptions, observer: Observer, shape: Callable[[], Shape]
    ) -> Result | LabError:
        """What came of one run, or what kept it from beginning; `shape` is that of a cluster that has to be made.

        Of a scenario that is run once more where its faults made it fail, what came of the second run.

        Raises:
            EngineUnavailable: the engine does not answer.
            LabError: the cluster cannot be made.
        """
        self.ready(shape)
        first = outcome_of(lambda: self.place.run(self.cluster, scenario, options, observer))
        again = None if isinstance(first, LabError) or first.verdict != "failed" else _once_more(scenario, options)
        if again is None:
            return first
        self.ready(shape)
        self.place.announce(f"{scenario.name} failed under its faults, and is run once more without them")
        return outcome_of(lambda: self.place.run(self.cluster, *again, observer))

    def ready(self, shape: Callable[[], Shape]) -> None:
        """Have the cluster there: make it, unless all its nodes run.

        Raises:
            LabError: it cannot be made.
        """
        wanted = self.cluster.shape if self.cluster else shape()
        self.cluster = self.place.still_there() or self.place.make(wanted, self.made_for)

    def ends_with(self, outcome: Result | LabError) -> bool:
        """Whether the rest is not wanted after this, or cannot be had."""
        if outcome.exit_code == Interrupted.exit_code:
            return True
        return outcome.exit_code == EngineUnavailable.exit_code and self.place.engine_is_gone()

    def end(self) -> None:
        """Remove the cluster, if it was made here and is not to stay."""
        if self.made_for is not None:
            self.place.remove_own()


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
    several = Several(place=place, cluster=cluster, made_for=None if cluster or options.keep else scenario.name)
    try:
        outcome = several.outcome(scenario, options, observer, lambda: shape_for(scenario, options, place.asked))
    finally:
        several.end()
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


def outcome_of(run: Callable[[], Result]) -> Result | LabError:
    """The result of one run of many, or what kept it from beginning.

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
