"""The plugin for pytest: warm clusters as fixtures, and scenarios as tests.

pytest loads it in each session if the lab is installed. So it contains only what each session needs, and imports the
rest when a test first needs it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from fnmatch import fnmatch
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from lab.engine.select import CHOICES
from lab.features.pytest.stash import DEADLINE, POOL, SUMMARY_LINES

if TYPE_CHECKING:
    from lab.features.pytest.pool import SessionCluster
    from lab.record.result import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the lab."""
    group = parser.getgroup("lab", "distributed tests (lab)")
    about = "engine of tests that name none (default: auto, Docker if it answers)"
    group.addoption("--lab-engine", choices=CHOICES, default="auto", help=about)
    about = "record the ranks that tests start, and show a verdict in the report of a test that fails or stands still"
    group.addoption("--lab", action="store_true", help=about)
    about = "end a run, with --lab a test, whose ranks wait without progress for this long (default: 60s; 0: never)"
    group.addoption("--lab-stall", type=_stall_limit, default=60.0, metavar="TIME", help=about)
    group.addoption("--lab-keep", action="store_true", help="keep the clusters at the end, for the next session")
    about = "record the runs of tests in DIR (default: .lab/runs) and write one HTML page of all of them there"
    group.addoption("--lab-report", nargs="?", const=".lab/runs", metavar="DIR", help=about)
    group.addoption("--lab-update", action="store_true", help="rewrite the snapshots of the calls of ranks")
    names = "names of files that are tests if they are scenarios; empty: only files that you name"
    parser.addini("lab_files", names, type="args", default=["*.yaml", "*.yml"])


def _stall_limit(word: str) -> float:
    from lab.cli.arguments import stall_limit

    return stall_limit(word)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Record the tests of this process if that is requested, before anything imports torch."""
    if early_config.known_args_namespace.lab:
        from lab.features.pytest.recorded import record_tests

        record_tests(early_config, early_config.known_args_namespace.lab_stall)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and register the page of all runs if it is requested."""
    about = "the cluster that the test gets; scenarios have it too"
    config.addinivalue_line("markers", f"lab(nodes=3, nproc_per_node=1, engine='docker', ...): {about}")
    if config.getoption("lab_report"):
        from lab.features.pytest.items import PageOfRuns

        config.pluginmanager.register(PageOfRuns(config), "lab_page_of_runs")


# -- collecting


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file as a test if it is a scenario file, or if the user named it."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    if not parent.session.isinitpath(file_path):
        if not any(fnmatch(file_path.as_posix(), f"*/{pattern}") for pattern in parent.config.getini("lab_files")):
            return None
        from lab.spec.load import is_scenario_file

        if not is_scenario_file(file_path):
            return None
    from lab.features.pytest.items import ScenarioFile

    return ScenarioFile.from_parent(parent, path=file_path)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore the copies in records, whatever folders a project collects from."""
    return True if collection_path.name == ".lab" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Begin to make a cluster while pytest collects, unless it may deselect the test or only lists it."""
    if _needs_cluster(item) and not any(item.config.getoption(option, None) for option in _NOT_ALL):
        from lab.features.pytest.items import make_early_for

        make_early_for(item)


_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test")
_NOT_ALL = (*_LISTING, "keyword", "markexpr", "deselect", "lf", "stepwise")
"""Options of pytest with which a collected test may not run, by their names in its configuration."""


def _needs_cluster(item: pytest.Item) -> bool:
    """Return whether a test surely needs a cluster: it has one of our fixtures, or is a distributed function."""
    if any(item.iter_markers("skip")) or any(item.iter_markers("skipif")):
        return False
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    ours = (fixtures[name][-1].func.__module__ for name in ("cluster", "lab_run") if fixtures.get(name))
    return __name__ in ours or hasattr(getattr(item, "function", None), "__lab_shape__")


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Report which engine the tests of the lab use, and why."""
    if any(hasattr(item, "scenario") or _needs_cluster(item) for item in items):
        from lab.features.pytest.items import engine_text

        return [f"lab: {engine_text(config)}"]
    return []


# -- fixtures


@pytest.fixture(name="cluster")
def warm_cluster(request: pytest.FixtureRequest) -> SessionCluster:
    """The warm cluster of the test's marker `lab`, up and whole; without a marker, one of three nodes."""
    from lab.features.pytest.items import cluster_of, keep_snapshots

    keep_snapshots(request)
    return cluster_of(request.node)


@pytest.fixture
def lab_run(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Runs a scenario or script on a warm cluster: `lab_run("train.py", nodes=2, args=["--epochs", "3"])`."""
    from lab.features.pytest.items import keep_snapshots, lab_run_for

    keep_snapshots(request)
    return lab_run_for(request.node)


# -- while tests run


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note when pytest-timeout ends the test, so that its runs end before."""
    item.config.stash[DEADLINE] = time.monotonic() + settings.timeout if settings.timeout else None


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget the deadline."""
    item.config.stash[DEADLINE] = None


@pytest.hookimpl(specname="pytest_runtest_makereport")
def pytest_lab_before_report(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add records to a test's report, and shorten errors; unittest has set the error by then."""
    if item.config.stash.get(POOL, None) is not None:
        from lab.features.pytest.items import before_report

        before_report(item, call)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the outcomes of its runs to the report of a test."""
    report = yield
    if item.config.stash.get(POOL, None) is None:
        return report
    from lab.features.pytest.items import after_report

    return after_report(item, report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Provide the session's clusters to distributed functions, including those that fixtures call."""
    __tracebackhide__ = True
    try:
        if "lab.features.functions.distributed" not in sys.modules:
            return (yield)
        from lab.features.pytest.items import provided_for

        with provided_for(item):
            return (yield)
    except KeyboardInterrupt as error:
        if item.session.shouldstop != _TERMINATED:
            raise
        raise pytest.fail.Exception(f"pytest {_TERMINATED}").with_traceback(error.__traceback__) from None


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


# -- at the end

_TERMINATED = "received SIGTERM"
_sessions = list[pytest.Session]()
"""Those of this process that handle the signal."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """At SIGTERM, let the running test fail with its diagnosis, and end the session, so that JUnit files are written.

    This changes only sessions that use the lab, and none in which something else handles the signal.
    """
    items = getattr(session, "items", ())  # a controller of pytest-xdist has none
    uses_lab = session.config.getoption("lab") or any(hasattr(one, "scenario") or _needs_cluster(one) for one in items)
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if uses_lab and is_free and threading.current_thread() is threading.main_thread():
        if not _sessions:
            os.register_at_fork(after_in_child=_restore_signal)
        _sessions.append(session)
        signal.signal(signal.SIGTERM, _terminate)


def _restore_signal() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_: int, frame: FrameType | None) -> None:
    session = _sessions[-1]
    get_plugin = session.config.pluginmanager.get_plugin
    controller, recorded = get_plugin("dsession"), get_plugin("lab_recorded_tests")
    for gateway in controller.nodemanager.group if controller is not None else ():
        os.kill(gateway._io.popen.pid, signal.SIGTERM)  # noqa: SLF001 - a worker fails its test, which ends the session
    if controller is not None:
        return
    session.shouldstop = _TERMINATED
    pool = sys.modules.get("lab.features.pytest.pool")
    is_run = pool is not None and any(one.f_code.co_filename == pool.__file__ for one, _ in walk_stack(frame))
    if is_run or recorded is None or not recorded.end_test():
        raise KeyboardInterrupt


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the clusters, or report which are kept."""
    if session.config.stash.get(POOL, None) is not None:
        from lab.features.pytest.items import close_pool

        close_pool(session.config)
    if (output := getattr(session.config, "workeroutput", None)) is not None:  # the controller prints them
        output.setdefault("lab_summary_lines", []).extend(session.config.stash.get(SUMMARY_LINES, ()))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the pool if the session did not end normally."""
    _restore_signal()
    if (pool := config.stash.get(POOL, None)) is not None:
        pool.close()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the summary lines of a pytest-xdist worker."""
    lines: list[str] = node.config.stash.setdefault(SUMMARY_LINES, [])
    lines += getattr(node, "workeroutput", {}).get("lab_summary_lines", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print each summary line once."""
    lines = config.stash.setdefault(SUMMARY_LINES, [])
    for line in dict.fromkeys(lines):
        terminalreporter.write_line(line if line.startswith("::") else f"lab: {line}")  # or an annotation
