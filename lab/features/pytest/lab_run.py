"""The fixtures `cluster` and `lab_run`: runs on the warm clusters of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import DEFAULT_NODES
from lab.engine.doctor import refuse_missing
from lab.errors import LabError, MachineLacks
from lab.features.faults.fault import broken_in
from lab.features.faults.planning import beyond, network_first
from lab.features.pytest.item import cluster_for, engine_for
from lab.features.pytest.marker import wanted_by
from lab.features.pytest.pool import pool_of
from lab.features.pytest.warm import WarmCluster
from lab.plan.fit import has_wishes
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.run.options import RunOptions
from lab.spec.lessons import SIGN
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario


def cluster_of(item: pytest.Item) -> WarmCluster:
    """The warm cluster that a test's marker asks for; where it cannot be had, the test ends with that sentence."""
    try:
        shape = wanted_by(item)
        refuse_missing(shape.get("gpus", 0))
        return cluster_for(item, shape)
    except MachineLacks as error:
        raise pytest.skip.Exception(harmless(error.message)) from None
    except LabError as error:
        raise pytest.fail.Exception(harmless(str(error)), pytrace=False) from None


class LabRun:
    """Runs scenarios and scripts for one test.

    Args:
        item: the test.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        pool_of(item.config)  # which has to do with what its report shows

    def __repr__(self) -> str:
        return "lab_run"

    def __call__(
        self,
        scenario: str | Path | Scenario,
        *,
        nodes: int | None = None,
        nproc_per_node: int | None = None,
        args: Sequence[str] = (),
        **options: Any,
    ) -> Result:
        """Run one on a warm cluster, as `Cluster.run` does.

        Args:
            scenario: a YAML file or a script, relative to the file of the test; a lesson as `@scatter`; a `Scenario`.
            nodes: how many take part; None: as the scenario says, else the marker, else three.
            nproc_per_node: workers on each; None: as the scenario says, else the marker, else one.
            args: arguments for the script, after those of the scenario.
            options: fields of `RunOptions`, such as `timeout_s=20`, `cold=True` or `trace=False`.

        Raises:
            LabError: it could not begin; a run that began has a result, whatever it came to.
        """
        if not isinstance(scenario, Scenario):
            lesson = str(scenario).startswith(SIGN)
            scenario = open_scenario(Path(scenario) if lesson else self._item.path.parent / scenario)
        if args:
            scenario = replace(scenario, args=(*scenario.args, *args))
        how = RunOptions(nodes=nodes, nproc_per_node=nproc_per_node, **options)
        return run_warm(self._item, scenario, how)


def run_warm(item: pytest.Item, scenario: Scenario, options: RunOptions, at_least: int = DEFAULT_NODES) -> Result:
    """Run a scenario for a test on the warm cluster that it can share with others, or else on one of its own.

    Args:
        item: the test, whose marker may ask for more.
        scenario: what is run.
        options: how.
        at_least: nodes of the cluster, where the marker does not say and the run needs fewer.

    Raises:
        LabError: it could not begin.
        pytest.skip.Exception: it needs what is not there.
    """
    try:
        return _run_warm(item, scenario, options, at_least)
    except MachineLacks as error:
        raise pytest.skip.Exception(harmless(error.message)) from None


def _run_warm(item: pytest.Item, scenario: Scenario, options: RunOptions, at_least: int) -> Result:
    shape = wanted_by(item)
    refuse_missing(max(scenario.resources.gpus, shape.get("gpus", 0)))
    said = broken_in(scenario)
    broken = network_first(said.network, shape.get("network"), said.faults)
    if broken:
        wrong = beyond(broken, engine_for(item, shape.get("engine", "auto")).name)
        if wrong:
            pytest.skip(f"{scenario.name} is to {wrong}")
    if has_wishes(scenario):
        engine_for(item, shape.get("engine", "auto"))
        nodes = {"nodes": options.nodes or scenario.nodes or shape.get("nodes", DEFAULT_NODES)}
        with pool_of(item.config).apart(**{**shape, **nodes}) as cluster:
            return cluster.run(scenario, options=options)
    needed = max(options.nodes or scenario.nodes or 1, shape.get("nodes", at_least))
    return cluster_for(item, {**shape, "nodes": needed}).run(scenario, options=options)
