"""Several runs that are made one after the other on one warm cluster; the caller holds the lock of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.errors import EngineUnavailable, Interrupted, LabError
from lab.plan.cluster import ClusterInfo, Shape
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place
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

        Raises:
            EngineUnavailable: the engine does not answer.
            LabError: the cluster cannot be made.
        """
        self.ready(shape)
        return outcome_of(lambda: self.place.run(self.cluster, scenario, options, observer))

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
