"""What a session shows of its runs: with tests that failed, on one page, and at its end."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

import lab
from lab.errors import LabError, RanksFailed, UsageError
from lab.features.pytest.items import ScenarioItem
from lab.features.pytest.last_lines import last_lines_text
from lab.features.pytest.pool import Pool, pool_of
from lab.features.pytest.session import POOL, SAID
from lab.record.layout import LOGS, RUNS, SUITE_REPORT
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.report.style import Style
from lab.report.verdict import verdict_text


class PageOfRuns:
    """Gathers the records that tests tell of, and writes the page at the end.

    Args:
        config: of the session.

    Raises:
        pytest.UsageError: the folder is one of something else.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._folder = Path(config.invocation_params.dir, config.getoption("lab_report"))
        self._records: dict[Path, None] = {}
        self._is_worker = hasattr(config, "workerinput")
        try:
            if not self._is_worker and config.getoption("lab_report") != str(RUNS):
                _refuse_other_folder(self._folder)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None

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


def _refuse_other_folder(folder: Path) -> None:
    """Refuse a folder that holds other things: pytest takes the word after the option for it, whatever was meant."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--lab-report: {folder} is not a folder", "write it last, or as --lab-report=DIR")
    others = [path for path in folder.iterdir() if not _is_ours(path)] if folder.is_dir() else []
    if others:
        raise UsageError(
            f"--lab-report: {folder} holds other things than runs, such as {others[0].name}",
            "write the option last, or as --lab-report=DIR with a folder of its own",
        )


def _is_ours(path: Path) -> bool:
    return path.name == SUITE_REPORT or path.name.startswith(".") or (path / LOGS).is_dir()


RECORD = "lab_record"
"""The property of a test that tells the record of a run; JUnit files have it too."""
_PLAIN = Style(colour=False)
_OWN = Path(lab.__file__).parent


def before_report(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Tell where the runs of a test are on record, and leave out of an error of the lab how it came about inside."""
    for result in _pool(item).runs.of_test:
        told = (RECORD, str(result.path))
        if result.path is not None and told not in item.user_properties:
            item.user_properties.append(told)
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, LabError) and not (isinstance(error, RanksFailed) and error.shown_inside):
        call.excinfo = _as_seen_from_outside(error)


def after_report(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """The report of a phase of a test, with a section for each of its runs that explains something."""
    pool = _pool(item)
    if report.failed and not isinstance(item, ScenarioItem):  # which says it all itself
        for result in pool.runs.of_test:
            if not result.passed or result is pool.runs.of_test[-1]:
                _add_section(report, f"lab: run of {result.scenario}", failure_text(result))
    if report.when == "teardown":
        pool.runs.of_test.clear()
        pool.in_use.clear()
    return report


def failure_text(result: Result) -> str:
    """What a run came to, and the end of what each rank printed."""
    return harmless("\n".join(filter(None, (verdict_text(result, _PLAIN), last_lines_text(result)))))


def _add_section(report: pytest.TestReport, title: str, text: str) -> None:
    """Add a section, where a JUnit file has it too if that can be."""
    add = getattr(report.longrepr, "addsection", None)
    if add is not None:
        add(title, text)
    else:
        report.sections.append((title, text))


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


def _pool(item: pytest.Item) -> Pool:
    return item.config.stash[POOL]


def engine_text(config: pytest.Config) -> str:
    """Which engine tests get that do not say, and why."""
    try:
        engine, why = pool_of(config).engine()
    except LabError as error:
        return f"no engine: {harmless(error.message)}"
    because = "Docker answers" if config.getoption("lab_engine") == "auto" else "--lab-engine"
    return f"{harmless(why) or f'using the {engine.name} engine ({because})'}"


def close_pool(config: pytest.Config) -> None:
    """Remove the clusters of this process; what is to be said of them is said at the end of the session."""
    said: list[str] = []
    with suppress(KeyboardInterrupt):  # it is done by then, and the session ends anyway
        kept = pool_of(config).close()
        said = [f"kept for the next session; to remove it: lab down --name {name}" for name in kept]
    if hasattr(config, "workeroutput"):  # of pytest-xdist: only its controller has a terminal
        config.workeroutput["lab_said"] = [engine_text(config), *said]
    else:
        config.stash.setdefault(SAID, []).extend(said)
