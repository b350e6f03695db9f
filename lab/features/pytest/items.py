"""What tests are of the lab: scenarios, runs on warm clusters, functions that are marked as distributed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lab.cluster import DEFAULT_NODES
from lab.engine.doctor import refuse_missing
from lab.engine.protocol import Engine
from lab.errors import LabError, MachineLacks
from lab.features.faults.fault import broken_in
from lab.features.faults.planning import beyond, network_first
from lab.features.functions.distributed import Provided, provide
from lab.features.functions.pack import How
from lab.features.pytest.marker import checked_shape, wanted_by
from lab.features.pytest.pool import WarmCluster, pool_of
from lab.plan.fit import has_wishes
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.run.options import RunOptions
from lab.spec.lessons import SIGN
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario


def cluster_for(item: pytest.Item, shape: Mapping[str, Any]) -> WarmCluster:
    """The warm cluster of a shape for a test, up and whole.

    Args:
        item: the test.
        shape: as `checked_shape` or `wanted_by` gives it.

    Raises:
        LabError: it cannot be made.
        pytest.skip.Exception: the test needs another engine than the one that this session was told to use.
    """
    engine_for(item, shape.get("engine", "auto"))
    return pool_of(item.config).cluster(**shape)


def engine_for(item: pytest.Item, needed: str) -> Engine:
    """The engine of a test.

    Raises:
        EngineUnavailable: it does not answer.
        pytest.skip.Exception: this session was told to use another one.
    """
    told = item.config.getoption("lab_engine")
    if "auto" not in (needed, told) and needed != told:
        pytest.skip(f"needs the {needed} engine, and this session is told to use {told} (--lab-engine)")
    return pool_of(item.config).engine(needed)[0]


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


class ScenarioFile(pytest.File):
    """A file that holds one scenario."""

    def collect(self) -> Iterable[ScenarioItem]:
        """The scenario; what is wrong with the file is said in the lab's words."""
        path = self.path
        if path.is_relative_to(Path.cwd()):
            path = Path(os.path.relpath(path))
        try:
            scenario = open_scenario(path)
        except LabError as error:
            raise self.CollectError(harmless(str(error))) from None
        yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """A scenario as a test."""

    def __init__(self, *, scenario: Scenario, **more: Any) -> None:
        super().__init__(**more)
        self.scenario = scenario
        self.add_marker(pytest.mark.lab)

    def runtest(self) -> None:
        """Run it, on the cluster that is large enough for all scenarios of the session."""
        from lab.features.pytest.report import failure_text

        try:
            result = run_warm(self, self.scenario, RunOptions(), at_least=_most_nodes(self.session))
        except LabError as error:
            _fail(harmless(str(error)))
        if not result.passed:
            _fail(failure_text(result))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"scenario {self.name}"


def _fail(text: str) -> NoReturn:
    raise pytest.fail.Exception(text, pytrace=False) from None


def _most_nodes(session: pytest.Session) -> int:
    """Nodes of the largest scenario that shares a cluster with others."""
    shared = (item.scenario for item in session.items if isinstance(item, ScenarioItem))
    return max(scenario.nodes or 1 for scenario in shared if not has_wishes(scenario))


_INI = ("truncation_limit_lines", "truncation_limit_chars", "assertion_text_diff_style")

_turn = threading.Lock()
"""Threads of a test ask for its cluster one after the other."""


def provided_for(item: pytest.Item) -> AbstractContextManager[None]:
    """What functions that are called while a test runs get from its session."""

    def cluster(said: Mapping[str, Any]) -> WarmCluster:
        with _turn:
            return cluster_for(item, {**wanted_by(item), **checked_shape(said, "@lab.distributed")})

    how = How(
        settings=lambda: _assertion_settings(item.config),
        variables=bool(item.config.getoption("showlocals", False)),
        write=_written,
    )
    return provide(Provided(cluster=cluster, test=getattr(item, "function", None), how=how))


def _assertion_settings(config: pytest.Config) -> dict[str, Any]:
    """What the explanation of an assertion depends on; see `labnode.features.functions.on_node.call_assertions`."""
    settings = {name: _ini(config, name) for name in _INI}
    kind = getattr(pytest.Config, "VERBOSITY_ASSERTIONS", None)
    verbosity = config.get_verbosity(kind) if kind is not None else config.getoption("verbose")
    on_ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    return {**settings, "verbosity": verbosity, "ci": on_ci}


def _ini(config: pytest.Config, name: str) -> Any:
    try:
        return config.getini(name)
    except (KeyError, ValueError):  # another version of pytest has no such option
        return None


def _written(error: BaseException) -> str:
    return str(pytest.ExceptionInfo.from_exception(error).getrepr(style="long", abspath=False))
