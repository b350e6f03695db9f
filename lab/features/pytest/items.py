"""What tests are of the lab: scenarios, runs on warm clusters, functions that are marked as distributed."""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import lab
from lab.cluster import DEFAULT_NODES
from lab.engine.doctor import refuse_missing
from lab.engine.protocol import Engine
from lab.errors import LabError, MachineLacks, RanksFailed
from lab.feature import hook
from lab.features.faults.fault import beyond, broken_in, network_first
from lab.features.functions.distributed import Provided, provide
from lab.features.functions.pack import How
from lab.features.pytest.marker import checked_shape, wanted_by
from lab.features.pytest.pool import WarmCluster, pool_of
from lab.features.suite.reports import rarest_first, read_tail
from lab.plan.plan import has_wishes
from lab.record.result import RankResult, Result
from lab.report.harmless import harmless
from lab.report.style import Style
from lab.report.verdict import verdict_text
from lab.run.options import RunOptions
from lab.spec.load import SIGN, open_scenario
from lab.spec.scenario import Scenario
from lab.words import clip, name_ranks, plural

RECORD = "lab_record"
"""The property of a test that tells the record of a run; JUnit files have it too."""
_OWN = Path(lab.__file__).parent
_INI = ("truncation_limit_lines", "truncation_limit_chars", "assertion_text_diff_style")
_turn = threading.Lock()
"""Threads of a test ask for its cluster one after the other."""


# -- clusters and runs of a test


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


def keep_snapshots(request: pytest.FixtureRequest) -> None:
    """Have `result.calls.matches_snapshot()` keep its files beside the file of the test, until that is over."""
    keep = hook("keep_beside_test")
    if keep is not None:
        item = request.node
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", item.nodeid.partition("::")[2]).strip("-")
        update = True if item.config.getoption("lab_update") else None  # None: those that are missing, none in CI
        request.addfinalizer(keep(item.path, name, "`pytest --lab-update`", update))


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
        return run_warm(self._item, scenario, RunOptions(nodes=nodes, nproc_per_node=nproc_per_node, **options))


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
        shape = wanted_by(item)
        engine = shape.get("engine", "auto")
        refuse_missing(max(scenario.resources.gpus, shape.get("gpus", 0)))
        said = broken_in(scenario)
        broken = network_first(said.network, shape.get("network"), said.faults)
        wrong = beyond(broken, engine_for(item, engine).name) if broken else ""
        if wrong:
            pytest.skip(f"{scenario.name} is to {wrong}")
        if has_wishes(scenario):
            engine_for(item, engine)
            nodes = {"nodes": options.nodes or scenario.nodes or shape.get("nodes", DEFAULT_NODES)}
            with pool_of(item.config).apart(**{**shape, **nodes}) as cluster:
                return cluster.run(scenario, options=options)
        needed = max(options.nodes or scenario.nodes or 1, shape.get("nodes", at_least))
        return cluster_for(item, {**shape, "nodes": needed}).run(scenario, options=options)
    except MachineLacks as error:
        raise pytest.skip.Exception(harmless(error.message)) from None


# -- scenarios as tests


class ScenarioFile(pytest.File):
    """A file that holds one scenario."""

    def collect(self) -> Iterable[ScenarioItem]:
        """The scenario; what is wrong with the file is said in the lab's words."""
        path = Path(os.path.relpath(self.path)) if self.path.is_relative_to(Path.cwd()) else self.path
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
        """Run it, on the cluster that is large enough for all scenarios of the session that share one."""
        scenarios = (item.scenario for item in self.session.items if isinstance(item, ScenarioItem))
        most = max((scenario.nodes or 1 for scenario in scenarios if not has_wishes(scenario)), default=1)
        try:
            result = run_warm(self, self.scenario, RunOptions(), at_least=most)
            why = "" if result.passed else failure_text(result)
        except LabError as error:
            why = harmless(str(error))
        if why:
            raise pytest.fail.Exception(why, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"scenario {self.name}"


# -- functions that are marked as distributed


def provided_for(item: pytest.Item) -> AbstractContextManager[None]:
    """What functions that are called while a test runs get from its session."""

    def cluster(said: Mapping[str, Any]) -> WarmCluster:
        with _turn:
            return cluster_for(item, {**wanted_by(item), **checked_shape(said, "@lab.distributed")})

    def write(error: BaseException) -> str:
        return str(pytest.ExceptionInfo.from_exception(error).getrepr(style="long", abspath=False))

    showlocals = bool(item.config.getoption("showlocals", False))
    how = How(settings=lambda: _assertion_settings(item.config), variables=showlocals, write=write)
    return provide(Provided(cluster=cluster, test=getattr(item, "function", None), how=how))


def _assertion_settings(config: pytest.Config) -> dict[str, Any]:
    """What the explanation of an assertion depends on; see `labnode.features.functions.on_node.call_assertions`."""
    settings: dict[str, Any] = {}
    for name in _INI:
        try:
            settings[name] = config.getini(name)
        except (KeyError, ValueError):  # another version of pytest has no such option
            settings[name] = None
    kind = getattr(pytest.Config, "VERBOSITY_ASSERTIONS", None)
    verbosity = config.get_verbosity(kind) if kind is not None else config.getoption("verbose")
    on_ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    return {**settings, "verbosity": verbosity, "ci": on_ci}


# -- what a test that failed shows of its runs: verdict, culprit, the last lines of each rank, and where the record is


def before_report(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Tell where the runs of a test are on record, and leave out of an error of the lab how it came about inside."""
    for result in pool_of(item.config).runs.of_test:
        told = (RECORD, str(result.path))
        if result.path is not None and told not in item.user_properties:
            item.user_properties.append(told)
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, LabError) and not (isinstance(error, RanksFailed) and error.shown_inside):
        call.excinfo = _as_seen_from_outside(error)


def after_report(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """The report of a phase of a test, with a section for each of its runs that explains something."""
    pool = pool_of(item.config)
    if report.failed and not isinstance(item, ScenarioItem):  # which says it all itself
        for result in pool.runs.of_test:
            if not result.passed or result is pool.runs.of_test[-1]:
                section = (f"lab: run of {result.scenario}", failure_text(result))
                longrepr: Any = report.longrepr
                if hasattr(longrepr, "addsection"):  # a JUnit file has it too
                    longrepr.addsection(*section)
                else:
                    report.sections.append(section)
    if report.when == "teardown":
        pool.runs.of_test.clear()
        pool.in_use.clear()
    return report


def failure_text(result: Result) -> str:
    """What a run came to, and the end of what each rank printed."""
    return harmless("\n".join(filter(None, (verdict_text(result, Style(colour=False)), last_lines_text(result)))))


def _as_seen_from_outside(error: LabError) -> pytest.ExceptionInfo[LabError]:
    """The error without the frames of the lab, by which it came about below the last line of somebody else."""
    frames = list(traceback.walk_tb(error.__traceback__))
    foreign = [not Path(frame.f_code.co_filename).is_relative_to(_OWN) for frame, _ in frames]
    if any(foreign):
        chain = None
        for frame, line in reversed(frames[: len(frames) - foreign[::-1].index(True)]):
            chain = TracebackType(chain, frame, frame.f_lasti, line)
        error = error.with_traceback(chain)
    error.__cause__, error.__suppress_context__ = None, True
    return pytest.ExceptionInfo.from_exception(error)


_LINES = 8
"""Of each rank."""
_LONGEST_LINE = 300
_TAIL_BYTES = 16384
_TRACEBACK = re.compile(r"(\[rank\d+\]: )?Traceback \(most recent call last\):$")
"""As Python begins one, and as torch does."""


def last_lines_text(result: Result) -> str:
    """The last lines of each rank, of a traceback its last; the one that the verdict shows is left out."""
    told = {result.culprit.rank} if result.culprit is not None and result.culprit.traceback else set()
    ranks = [*result.parents, *(rank for rank in result.ranks if rank.parent is None)]
    nodes = {rank.rank: rank.node for rank in ranks}
    last = [(rank.rank, lines) for rank in ranks if (lines := _last(rank, without_traceback=rank.rank in told))]
    shown = rarest_first(last)
    parts = list[str]()
    for numbers, text in shown:
        alike = f", as {name_ranks(numbers[1:])}" if len(numbers) > 1 else ""
        parts.append(f"  rank {numbers[0]} on {nodes[numbers[0]]} printed last{alike}:")
        parts += [f"  │ {line}" for line in text]
    left = len(last) - sum(len(numbers) for numbers, _ in shown)
    if left:
        parts.append(f"  and {plural(left, 'rank')} more: lab logs --run {result.run}")
    return "\n".join(parts)


def _last(rank: RankResult, *, without_traceback: bool) -> list[str]:
    lines = [line.rstrip() for line in read_tail(rank.log_path, _TAIL_BYTES)]
    begin = next((at for at in reversed(range(len(lines))) if _TRACEBACK.match(lines[at])), None)
    if begin is not None:
        lines = [*lines[:begin], *([] if without_traceback else lines[-1:])]
    return [clip(line, _LONGEST_LINE) for line in lines[-_LINES:]]
