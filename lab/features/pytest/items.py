"""Turn tests into items of the lab: the clusters they request, and what reports show of their runs."""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import lab
from lab.cluster import DEFAULT_NODES
from lab.diagnosis.errors import is_loss
from lab.engine.doctor import refuse_missing
from lab.engine.protocol import Engine
from lab.engine.select import CHOICES
from lab.errors import LabError, MachineLacks, RanksFailed, UsageError
from lab.feature import find_hook
from lab.features.faults.fault import all_faults, explain_unsupported
from lab.features.faults.kinds.links import network_of
from lab.features.functions.distributed import SHAPE, Provided, provide_clusters
from lab.features.functions.pack import CallOptions
from lab.features.pytest.pool import SessionCluster, pool_of
from lab.features.pytest.stash import RECORD, SUMMARY_LINES
from lab.features.recording.verb import annotations_text, failed_test_text
from lab.features.suite import SUITE_REPORT
from lab.features.suite.view import last_printed
from lab.plan.plan import has_wishes
from lab.record.layout import LOGS, RUNS
from lab.record.record_files import read_tail
from lab.record.result import RankResult, Result
from lab.report.sanitize import sanitize_plain, sanitize_text
from lab.run.options import RunOptions
from lab.spec.kinds import parse_size
from lab.spec.load import SIGN, open_scenario
from lab.spec.reading import did_you_mean
from lab.spec.scenario import Scenario
from lab.words import clip_end, format_count, join_words

MARKER = "@pytest.mark.lab"
_COUNTS = ("nodes", "nproc_per_node", "gpus")
_SHAPE = (*_COUNTS, "engine", "image", "requirements", "data", "cpus", "memory", "strict", "env", "network")
"""Keywords of a cluster, named as the options of `lab up`."""
_INTERNAL = re.compile(
    rf"{re.escape(str(Path(lab.__file__).parent))}/"
    r"|.*/python[\d.]+/(?:(?:site|dist)-packages/torch/)?(?:multiprocessing/|concurrent/futures/|subprocess\.py)"
)
"""Files of the lab, and those of Python and PyTorch that wait for processes."""
_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib/python[\d.]+)/")
_INI = ("truncation_limit_lines", "truncation_limit_chars", "assertion_text_diff_style")
_LINES = 8
"""Last lines shown of each rank."""
_LONGEST_LINE = 300
_TAIL_BYTES = 16384
_TRACEBACK = re.compile(r"(\[rank\d+\]: )?Traceback \(most recent call last\):$")
"""First line of a traceback, by Python or by torch."""
_ASSERT = re.compile("assert ?|AssertionError|Failed: pytest received SIGTERM")
"""Begins the message of a failed assertion, whose type pytest may leave out, or of an ended test."""
_turn = threading.Lock()
"""Threads of a test request its cluster one after the other."""


# -- the cluster of a test: its marker `lab`, or its distributed function


def wanted_by(item: pytest.Item) -> dict[str, Any]:
    """Return the cluster keywords of a test's marker; empty if it has no marker.

    Raises:
        UsageError: A keyword is not allowed.
    """
    if (marker := item.get_closest_marker("lab")) is not None and marker.args:
        raise UsageError(f"{MARKER}: found {marker.args[0]!r}; allowed: keywords, such as nodes=3")
    return checked_shape(marker.kwargs, MARKER) if marker is not None else {}


def checked_shape(keywords: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Validate keywords of a cluster, for `Pool.cluster`; leave out those that are None.

    Args:
        keywords: Keywords by name.
        where: Beginning of each message.

    Raises:
        UsageError: There is no such keyword, or the value is not allowed.
    """
    allowed = _SHAPE if where == MARKER else (*_SHAPE, "backend", "timeout_s", "fresh")
    for name in keywords:
        if name not in _SHAPE:
            meant = did_you_mean(name, allowed)
            raise UsageError(f"{where}: there is no keyword {name!r}{meant}; allowed: {join_words(allowed)}")
    shape = {name: value for name, value in keywords.items() if value is not None}
    for name in _COUNTS:
        value = shape.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{where}: found {name}={value!r}; allowed: a whole number, 1 or more")
    if (engine := shape.get("engine", "auto")) not in CHOICES:
        meant = did_you_mean(str(engine), CHOICES)
        raise UsageError(f"{where}: found engine={engine!r}{meant}; allowed: {join_words(CHOICES)}")
    part = ""
    try:
        if "network" in shape:
            network_of(shape["network"])
        if "memory" in shape:
            part = "memory: "
            shape["memory_bytes"] = parse_size(shape.pop("memory"))
    except UsageError as error:
        raise UsageError(f"{where}: {part}{error.message}") from None
    return shape


# -- clusters and runs of a test


def cluster_of(item: pytest.Item) -> SessionCluster:
    """Return the warm cluster that a test's marker requests; if it is unavailable, end the test with the reason."""
    try:
        shape = wanted_by(item)
        refuse_missing(shape.get("gpus", 0))
        return cluster_for(item, shape)
    except MachineLacks as error:
        raise pytest.skip.Exception(sanitize_text(error.message)) from None
    except LabError as error:
        raise pytest.fail.Exception(sanitize_text(str(error)), pytrace=False) from None


def cluster_for(item: pytest.Item, shape: Mapping[str, Any]) -> SessionCluster:
    """Return the warm cluster of a shape, from `checked_shape` or `wanted_by`, for a test: up and whole.

    Raises:
        LabError: It cannot be created.
        pytest.skip.Exception: The test needs another engine than the session uses.
    """
    engine_for(item, shape)
    return pool_of(item.config).cluster(**shape)


def make_early_for(item: pytest.Item) -> None:
    """Begin to create the cluster of a test, if it is the first one that needs one on this machine."""
    pool, chosen = pool_of(item.config), item.config.getoption("lab_engine")
    with suppress(LabError):  # the test reports it
        of_function = getattr(getattr(item, "function", None), SHAPE, {})
        shape = {"nodes": DEFAULT_NODES, **wanted_by(item), **checked_shape(of_function, "@lab.distributed")}
        if not shape.get("gpus") and (chosen == "auto" or shape.get("engine", chosen) in ("auto", chosen)):
            pool.make_early(shape)


def engine_for(item: pytest.Item, shape: Mapping[str, Any]) -> Engine:
    """Return the engine of a test.

    Raises:
        EngineUnavailable: It does not answer.
        pytest.skip.Exception: The session uses another one.
    """
    needed, chosen = shape.get("engine", "auto"), item.config.getoption("lab_engine")
    if "auto" not in (needed, chosen) and needed != chosen:
        pytest.skip(f"needs the {needed} engine, but this session uses {chosen} (--lab-engine)")
    return pool_of(item.config).engine(needed)[0]


def keep_snapshots(request: pytest.FixtureRequest) -> None:
    """Let `result.calls.matches_snapshot()` keep its files next to the test's file until the test ends."""
    if (keep := find_hook("use_test_snapshots")) is not None:
        item = request.node
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", item.nodeid.partition("::")[2]).strip("-")
        update = True if item.config.getoption("lab_update") else None  # None: write missing ones, but not in CI
        request.addfinalizer(keep(item.path, name, "`pytest --lab-update`", update))


def lab_run_for(item: pytest.Item) -> Callable[..., Result]:
    """Return the function that runs scenarios and scripts for one test."""
    pool_of(item.config)  # create it, because the report of the test uses it

    def lab_run(scenario: str | Path | Scenario, *, args: Sequence[str] = (), **options: Any) -> Result:
        """Run one on a warm cluster, as `Cluster.run` does.

        Args:
            scenario: A YAML file or a script, relative to the file of the test; a lesson as `@scatter`; a `Scenario`.
            args: Arguments for the script, after those of the scenario.
            options: Fields of `RunOptions`, such as `nodes=2`, `timeout_s=20`, `cold=True`, or `trace=False`. Without
                `nodes`, the scenario decides, then the marker; the default is three.

        Raises:
            LabError: It could not begin; a run that began has a result, also if it failed.
        """
        if not isinstance(scenario, Scenario):
            scenario = open_scenario(Path(scenario) if str(scenario).startswith(SIGN) else item.path.parent / scenario)
        scenario = replace(scenario, args=(*scenario.args, *args))
        result = run_warm(item, scenario, RunOptions(**options))
        if (equals_of_run := find_hook("equals_of_run")) is not None:
            vars(result)["equals"] = equals_of_run(scenario, result)
        return result

    return lab_run


def run_warm(item: pytest.Item, scenario: Scenario, options: RunOptions, at_least: int = DEFAULT_NODES) -> Result:
    """Run a scenario for a test, on a shared warm cluster if possible, else on its own.

    Args:
        item: The test, whose marker can request more.
        scenario: The scenario.
        options: Options of the run.
        at_least: Nodes of the cluster, if the marker has none and the run needs fewer.

    Raises:
        LabError: It could not begin.
        pytest.skip.Exception: The machine lacks a requirement.
    """
    try:
        shape, nodes = wanted_by(item), options.nodes or scenario.nodes
        refuse_missing(max(scenario.resources.gpus, shape.get("gpus", 0)))
        if problem := explain_unsupported(all_faults(scenario, shape.get("network")), engine_for(item, shape).name):
            pytest.skip(f"{scenario.name} injects {problem}")
        if has_wishes(scenario):
            shape["nodes"] = nodes or shape.get("nodes", DEFAULT_NODES)
            with pool_of(item.config).standalone(**shape) as own:
                return own.run(scenario, options=options)
        needed = max(nodes or 1, shape.get("nodes", at_least))
        return cluster_for(item, {**shape, "nodes": needed}).run(scenario, options=options)
    except MachineLacks as error:
        raise pytest.skip.Exception(sanitize_text(error.message)) from None


# -- scenarios as tests


class ScenarioFile(pytest.File):
    """A file that holds one scenario."""

    def collect(self) -> Iterable[ScenarioItem]:
        """Load the scenario; an invalid file becomes an error with the lab's message."""
        path = Path(os.path.relpath(self.path)) if self.path.is_relative_to(Path.cwd()) else self.path
        try:
            scenario = open_scenario(path)
        except LabError as error:
            raise self.CollectError(sanitize_text(str(error))) from None
        yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)


class ScenarioItem(pytest.Item):
    """A scenario as a test."""

    def __init__(self, *, scenario: Scenario, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.scenario = scenario
        self.add_marker(pytest.mark.lab)

    def runtest(self) -> None:
        """Run it, on a cluster that is large enough for all scenarios of the session that share one."""
        scenarios = (item.scenario for item in self.session.items if isinstance(item, ScenarioItem))
        most = max((scenario.nodes or 1 for scenario in scenarios if not has_wishes(scenario)), default=1)
        try:
            result = run_warm(self, self.scenario, RunOptions(), at_least=most)
            why = "" if result.passed else failure_text(result)
        except LabError as error:
            why = sanitize_text(str(error))
        if why:
            raise pytest.fail.Exception(why, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the position of the test."""
        return self.path, None, f"scenario {self.name}"


# -- functions that are marked as distributed


def provided_for(item: pytest.Item) -> AbstractContextManager[None]:
    """Provide clusters and options to distributed functions that are called while a test runs."""

    def cluster(keywords: Mapping[str, Any]) -> SessionCluster:
        with _turn:
            return cluster_for(item, {**wanted_by(item), **checked_shape(keywords, "@lab.distributed")})

    def write(error: BaseException) -> str:
        return str(pytest.ExceptionInfo.from_exception(error).getrepr(style="long", abspath=False))

    variables = any(item.config.getoption(name, False) for name in ("showlocals", "usepdb"))
    how = CallOptions(settings=_assertion_settings(item.config), variables=variables, write=write)
    return provide_clusters(Provided(cluster=cluster, how=how))


def _assertion_settings(config: pytest.Config) -> dict[str, Any]:
    """Return the settings that explain assertions; see `labnode.features.functions.on_node.call_assertions`."""
    settings: dict[str, Any] = dict.fromkeys(_INI)
    for name in _INI:
        with suppress(KeyError, ValueError):  # not every version of pytest has the option
            settings[name] = config.getini(name)
    verbosity = config.get_verbosity(pytest.Config.VERBOSITY_ASSERTIONS)
    return {**settings, "verbosity": verbosity, "ci": any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))}


# -- runs in the report of a failed test: verdict, culprit, the last lines of each rank, and the record


def before_report(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add the records of a test's runs to its properties, and hide the lab's frames in its own errors."""
    for result in pool_of(item.config).session.of_test:
        record_property = (RECORD, str(result.path))
        if result.path is not None and record_property not in item.user_properties:
            item.user_properties.append(record_property)
    error = call.excinfo.value if call.excinfo is not None else None
    if call.excinfo is not None and not (isinstance(error, RanksFailed) and error.shown_inside):
        call.excinfo = hide_last_frames(call.excinfo.value)
        if isinstance(error, LabError):
            error.__cause__, error.__suppress_context__ = None, True


def after_report(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Add a section to the report for each run of the test that explains something."""
    pool = pool_of(item.config)
    if report.failed:
        longrepr: Any = report.longrepr
        crash = getattr(longrepr, "reprcrash", None)  # the line of the test in pytest's summary
        annotated = item.config.stash.setdefault(SUMMARY_LINES, [])
        shown, last = str(longrepr), pool.session.of_test[-1:]
        for result in pool.session.of_test:
            annotated += annotations_text([result], pool.session.shipped.get(result.scenario, "")).splitlines()
            is_scenario = isinstance(item, ScenarioItem)  # its own failure is complete
            if is_scenario and not result.passed and crash is not None:
                crash.message = sanitize_plain(result.reason)
            if is_scenario or (result.passed and result is not last[0]) or f"record: {result.path}" in shown:
                continue
            is_of_calls = hasattr(getattr(item, "function", None), SHAPE)  # its ranks may have begun in another file
            whose = "that began with" if is_of_calls and result.scenario != item.path.stem else "of"
            section = (f"lab: run {whose} {result.scenario}", failure_text(result, shown))
            if hasattr(longrepr, "addsection"):  # JUnit files contain it too
                longrepr.addsection(*section)
            else:
                report.sections.append(section)
            if result is last[0] and not result.passed and crash is not None and _ASSERT.match(crash.message):
                crash.message = sanitize_plain(result.reason)
    if report.when == "teardown":
        pool.session.of_test.clear()
        pool.in_use.clear()
    return report


def failure_text(result: Result, shown: str = "") -> str:
    """Format the outcome of a run, and the last lines of each rank, without what the failure shows already."""
    is_call = f"`lab show {result.path}`" in shown  # the hint of its error; pytest captures what its ranks print
    reason, *lines = failed_test_text(result).split("\n")
    lines = [line for line in lines if not (is_call and line == f"  record: {result.path}")]
    lines += [] if is_call else [last_lines_text(result)]
    return sanitize_text("\n".join(filter(None, lines if shown and result.reason in shown else [reason, *lines])))


def hide_last_frames(error: BaseException) -> pytest.ExceptionInfo[BaseException]:
    """Remove what follows the user's last frame from an error's traceback, from a frame of the lab or a wait on."""
    frames, chain = list(traceback.walk_tb(error.__traceback__)), None
    files = [frame.f_code.co_filename for frame, _ in frames]
    own = max((n for n, file in enumerate(files) if not (_INTERNAL.match(file) or _LIBRARY.match(file))), default=-1)
    internal = [n for n, file in enumerate(files) if n > own >= 0 and _INTERNAL.match(file)]
    for frame, line in reversed(frames[: internal[0]] if internal else ()):
        chain = TracebackType(chain, frame, frame.f_lasti, line)
    return pytest.ExceptionInfo.from_exception(error.with_traceback(chain) if internal else error)


def last_lines_text(result: Result) -> str:
    """Format the last lines of each rank, of a traceback its last line; omit the one that the verdict shows."""
    culprit_rank = result.culprit.rank if result.culprit is not None and result.culprit.traceback else None
    raised = result.culprit.traceback.splitlines()[-1] if culprit_rank is not None and result.culprit else "\n"

    def read_lines(rank: RankResult) -> list[str]:
        lines = [line.rstrip() for line in read_tail(rank.log_path, _TAIL_BYTES)]
        begin = next((at for at in reversed(range(len(lines))) if _TRACEBACK.match(lines[at])), None)
        if begin is not None:
            is_known = rank.rank == culprit_rank or is_loss(lines[-1]) or lines[-1].endswith(raised)
            lines[begin:] = [] if is_known else lines[-1:]
        return [clip_end(line, _LONGEST_LINE) for line in lines]

    shown, left = last_printed(result, _LINES, read_lines)
    parts = list[str]()
    for one in shown:
        parts += [f"  {one.who} printed last{one.others}:", *(f"  │ {line}" for line in one.lines)]
    if left:
        parts.append(f"  and {format_count(left, 'rank')} more: lab logs {result.run}")
    return "\n".join(parts)


# -- what a session prints in addition to its tests


def engine_text(config: pytest.Config) -> str:
    """Name the default engine of tests, and why it is used."""
    try:
        engine, why = pool_of(config).engine()
    except LabError as error:
        return f"no engine: {sanitize_text(error.message)}"
    because = "Docker answers" if config.getoption("lab_engine") == "auto" else "--lab-engine"
    return f"{sanitize_text(why) or f'using the {engine.name} engine ({because})'}"


def close_pool(config: pytest.Config) -> None:
    """Remove the clusters of this process; keep the messages for the end of the session."""
    lines: list[str] = []
    with suppress(KeyboardInterrupt):  # the pool is closed by then, and the session ends anyway
        lines = [f"kept cluster {name}; `lab down --name {name}` removes it" for name in pool_of(config).close()]
    if (summary := pool_of(config).summary) and config.getoption("verbose") >= 0:
        lines.append(summary)
    if hasattr(config, "workeroutput"):  # in pytest-xdist, only the controller has a terminal
        config.workeroutput["lab_summary_lines"] = [engine_text(config), *lines]
    else:
        config.stash.setdefault(SUMMARY_LINES, []).extend(lines)


class PageOfRuns:
    """`--lab-report`: gather the records of tests, and write one HTML page of all runs at the end.

    Args:
        config: Configuration of the session.

    Raises:
        pytest.UsageError: The folder has other files.
    """

    def __init__(self, config: pytest.Config) -> None:
        folder = self._folder = Path(config.invocation_params.dir, config.getoption("lab_report"))
        self._records: dict[Path, None] = {}
        self._is_worker = hasattr(config, "workerinput")
        if self._is_worker or config.getoption("lab_report") == str(RUNS):
            return
        for path in [folder] if folder.is_file() else folder.glob("[!.]*"):
            if path.name != SUITE_REPORT and not (path / LOGS).is_dir():  # pytest reads any word as the option's value
                hint = "hint: write the option last, or as --lab-report=DIR with a separate folder"
                raise pytest.UsageError(f"--lab-report: {path} is not the record of a run\n  {hint}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the records of a test."""
        self._records |= {Path(str(value)): None for name, value in report.user_properties if name == RECORD}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the page."""
        from lab.features.records.records import Suite
        from lab.features.suite.page import write_suite
        from lab.record.read import Record

        records = tuple(Record(path=path) for path in self._records if path.is_dir())
        if self._is_worker or not records:
            return
        suite = Suite(name="pytest", records=records, planned=len(records))
        try:
            path = write_suite(suite, self._folder / SUITE_REPORT).path
            terminalreporter.write_line(f"lab: all runs on one page: {path}")
        except LabError as error:
            terminalreporter.write_line(f"lab: {error}")
