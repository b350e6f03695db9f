"""A warm cluster as tests have it: what runs on it is recorded for the session, and shown where the test fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster
from lab.errors import Interrupted, LabError, RanksFailed
from lab.features.functions.on_cluster import calling_of, run_ranks
from lab.features.pytest.snapshots import wants_update
from lab.features.pytest.stash import DEADLINE
from lab.record.layout import RUNS
from lab.record.read import Turn
from lab.record.result import Result
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.features.functions.calling import How

_ENDING_S = 6.0
"""What the lab takes at most, as a rule, to say where the ranks of a run hang and to end them."""


class Runs:
    """The runs of a session: where they are recorded, and those of the test that runs now."""

    def __init__(self, config: pytest.Config) -> None:
        report = config.getoption("lab_report")
        self.folder = Path(config.invocation_params.dir, report or RUNS)
        worker: dict[str, Any] = getattr(config, "workerinput", {})
        self._suite = worker.get("testrunuid") or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        self._update = wants_update(config)
        self._number = 0
        self._stash = config.stash
        self.of_test: list[Result] = []

    def options(self, scenario: Scenario, options: RunOptions) -> RunOptions:
        """The options of the next run: its record is one of the session's, and it is over before its test has to be."""
        self._number += 1
        own_s = scenario.timeout_s if options.timeout_s is None else options.timeout_s
        in_time_s = self.in_time(own_s)
        turn = Turn(suite=self._suite, number=self._number, of=self._number)
        runs = self.folder if options.runs == RUNS else options.runs
        update = self._update if options.update is None else options.update
        timeout_s = options.timeout_s if in_time_s == own_s else in_time_s
        return replace(options, runs=runs, turn=turn, update=update, timeout_s=timeout_s)

    def in_time(self, own_s: float) -> float:
        """How long what begins now may take, of so many seconds, so that it is over before its test has to be."""
        deadline = self._stash.get(DEADLINE, None)
        if deadline is None:
            return own_s
        left_s = deadline - time.monotonic()
        usable_s = left_s - min(_ENDING_S, left_s / 2)
        return min(own_s, max(usable_s, 0.1))

    def take(self, result: Result) -> Result:
        """Keep what came out of a run.

        Raises:
            KeyboardInterrupt: it was interrupted.
        """
        self.of_test.append(result)
        if result.exit_code == Interrupted.exit_code:
            raise KeyboardInterrupt
        return result


class WarmCluster(Cluster):
    """A cluster that lives longer than a test; see `Cluster`.

    Args:
        runs: those of the session.
        more: what `Cluster` takes.
    """

    def __init__(self, runs: Runs, **more: Any) -> None:
        super().__init__(**more)
        self._named = False  # nobody chose the name, who could have meant another one
        self._runs = runs
        self._fresh = False
        self.network: str | Mapping[str, Any] | None = None
        """What its links are like in each run of the test that has it; None: as they are, or the scenario says."""

    def begin_test(self) -> None:
        """What the runs of other tests left in the folder that all nodes share is not there for the next run."""
        self._fresh = True

    def run(
        self,
        scenario: Scenario | str | Path,
        *,
        args: Sequence[str] = (),
        observer: Observer | None = None,
        options: RunOptions | None = None,
        **more: Any,
    ) -> Result:
        """Run a scenario, or a plain script, on this cluster; see `Cluster.run`."""
        scenario = scenario if isinstance(scenario, Scenario) else open_scenario(Path(scenario))
        options = self._runs.options(scenario, replace(options or RunOptions(), **more))
        options = self._on_its_network(options)
        options, self._fresh = replace(options, fresh=options.fresh or self._fresh), False
        return self._runs.take(super().run(scenario, args=args, observer=observer, options=options))

    def run_all(
        self,
        scenarios: Sequence[Scenario],
        *,
        observer: Observer | None = None,
        options: RunOptions | None = None,
        started: Callable[[Scenario], None] = lambda _: None,
        ended: Callable[[Scenario, Result | LabError], None] = lambda *_: None,
    ) -> list[Result | LabError]:
        """Run many scenarios one after the other; see `Cluster.run_all`."""
        options = self._on_its_network(replace(options or RunOptions(), runs=self._runs.folder))
        outcomes = super().run_all(scenarios, observer=observer, options=options, started=started, ended=ended)
        for outcome in outcomes:
            if isinstance(outcome, Result):
                self._runs.take(outcome)
        return outcomes

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        """Call a function on every rank, in time for the test; see `Cluster.call`."""
        __tracebackhide__ = True
        try:
            how = replace(how, timeout_s=self._runs.in_time(how.timeout_s))
            return calling_of(self, self._run_called).call(function, arguments, named, how)
        except RanksFailed:
            if self.called is not None:
                self._runs.of_test.append(self.called)
            raise

    def _run_called(self, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        return run_ranks(self, scenario, self._on_its_network(self._runs.options(scenario, options)), observer)

    def _on_its_network(self, options: RunOptions) -> RunOptions:
        return options if self.network is None else replace(options, network=options.network or self.network)
