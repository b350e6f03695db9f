"""Trials of schedules on one warm cluster that is made for them: each begins with an empty shared folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lab.engine.protocol import Engine
from lab.errors import EngineUnavailable, Interrupted, LabError, UsageError
from lab.features.chaos.draw import Schedule
from lab.features.chaos.search import Trial, anybody_failed, broken_after, broken_by
from lab.features.faults.fault import Fault, broken_in, with_faults
from lab.features.faults.kind import Harm
from lab.plan.fit import shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place, refuse_foreign_wishes
from lab.run.pool import Several
from lab.spec.launching import LAB
from lab.spec.scenario import Scenario

_SLOWER = 10.0
"""A run may take so many times as long as one without faults before it hangs."""
_LEAST_S = 10.0
"""It may always take so long."""
_LONGEST_NAME = 36


@dataclass(kw_only=True)
class Trials:
    """Runs of one scenario on the cluster that is made for them."""

    several: Several
    scenario: Scenario
    asked: Mapping[str, Any]
    options: RunOptions
    again: bool = False
    """Whether the scenario passes on what it left in the shared folder too, so that it can be run after another run."""

    def undisturbed(self) -> Result:
        """Run it without faults, which it has to pass; how long it took says when later ones hang.

        Raises:
            UsageError: it does not pass.
            LabError: it could not be run.
        """
        first = self._run(self.scenario, fresh=True)
        if not first.passed:
            raise UsageError(
                f"{self.scenario.name} {first.verdict} without faults already: {first.reason}",
                "a search begins with a scenario that passes",
            )
        if self.options.timeout_s is None and self.scenario.launcher.name == LAB:
            longest = max(_LEAST_S, _SLOWER * (first.duration_s or 0.0))
            self.options = replace(self.options, timeout_s=min(self.scenario.timeout_s, longest))
        second = self._run(self.scenario, fresh=False)
        self.again = second.passed
        return first

    @property
    def timeout_s(self) -> float:
        """How long a run may take before it hangs."""
        return self.scenario.timeout_s if self.options.timeout_s is None else self.options.timeout_s

    def attempt(self, schedule: Schedule, step: str) -> Trial:
        """Run it under faults, and once more without them where they made it fail.

        Raises:
            Interrupted: somebody ended the search.
            EngineUnavailable: the engine does not answer.
        """
        began = time.monotonic()
        try:
            trial = self._tried(schedule)
        except (Interrupted, EngineUnavailable):
            raise
        except LabError as error:  # one of the runs could not begin
            trial = Trial(schedule=schedule, ended="error", reason=error.message)
        return replace(trial, step=step, seconds=round(time.monotonic() - began, 3))

    def _tried(self, schedule: Schedule) -> Trial:
        result, after = self._run(with_faults(self.scenario, schedule), fresh=True), None
        broken = broken_by(result, harms_done(result, schedule))
        if not broken and self.again and anybody_failed(result):
            after = self._run(self.scenario, fresh=False)
            broken = broken_after(after)
        return Trial(
            schedule=schedule,
            ended=result.verdict,
            reason=result.reason,
            broken=broken,
            run=result.run,
            after=after.run if after is not None else "",
        )

    def _run(self, scenario: Scenario, *, fresh: bool) -> Result:
        options = replace(self.options, fresh=fresh)
        shape = shape_for(scenario, options, self.asked)
        outcome = self.several.outcome(scenario, options, Observer(), lambda: shape)
        if isinstance(outcome, LabError):
            raise outcome
        if outcome.exit_code == Interrupted.exit_code:
            raise Interrupted("the search was interrupted")
        return outcome


@contextmanager
def trials_on(
    engine: Engine,
    name: str,
    scenario: Scenario,
    *,
    asked: Mapping[str, Any],
    options: RunOptions,
    announce: Callable[[str], None],
) -> Iterator[Trials]:
    """Trials of a scenario on a cluster of their own, beside the one of this name, which is removed at the end.

    Raises:
        UsageError: the scenario has faults of its own, is to fail, or would mount foreign folders.
    """
    refuse_unfit_for_search(scenario)
    refuse_foreign_wishes(scenario, engine, asked, options)
    place = Place(engine=engine, name=f"{name[:_LONGEST_NAME]}-chaos", asked=asked, announce=announce)
    with ClusterLock(engine.name, place.name).held(f"a search with {scenario.name}", options.wait_s) as lock:
        several = Several(place=place, cluster=place.usable(lock), made_for="chaos")
        try:
            yield Trials(several=several, scenario=scenario, asked=asked, options=options)
        finally:
            several.end()


def refuse_unfit_for_search(scenario: Scenario) -> None:
    """Refuse a scenario that no search can use.

    Raises:
        UsageError: it is one.
    """
    if scenario.expect.verdict != "passed":
        raise UsageError(
            f"{scenario.name} expects to be {scenario.expect.verdict}", "a search begins with a scenario that passes"
        )
    if broken_in(scenario).faults:
        raise UsageError(f"{scenario.name} has faults of its own", "leave them out: the search draws its own")
    if not scenario.trace.on:
        raise UsageError(f"{scenario.name} records no calls", "leave `trace: false` out: faults are drawn from them")


def nodes_and_ranks(result: Result) -> tuple[list[str], list[int]]:
    """The nodes and ranks that took part in a run, in order."""
    return list(dict.fromkeys(rank.node for rank in result.ranks)), [rank.rank for rank in result.ranks]


def record_of(result: Result) -> Record:
    """The record of a run that has one."""
    if result.path is None:
        raise UsageError("a run without a record has nothing to draw from")
    return Record(path=result.path)


def harms_done(result: Result, schedule: Sequence[Fault]) -> list[Harm]:
    """What the faults can do that were set off in a run; one that failed may have been done in part."""
    done = {str(one["fault"]) for one in result.faults}
    return [fault.what.harm for fault in schedule if str(fault) in done]
