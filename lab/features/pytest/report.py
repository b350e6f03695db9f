"""What a session shows of its runs beside its tests: one page of all, and what there is to say at its end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.features.pytest.items import RECORD
from lab.features.pytest.pool import pool_of
from lab.features.pytest.session import SAID
from lab.record.layout import LOGS, RUNS, SUITE_REPORT
from lab.report.harmless import harmless


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


class PageOfRuns:
    """`--lab-report`: gathers the records that tests tell of, and writes one HTML page of all runs at the end.

    Args:
        config: of the session.

    Raises:
        pytest.UsageError: the folder is one of something else.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._folder = Path(config.invocation_params.dir, config.getoption("lab_report"))
        self._records: dict[Path, None] = {}
        self._is_worker = hasattr(config, "workerinput")
        if not self._is_worker and config.getoption("lab_report") != str(RUNS):
            _refuse_other_folder(self._folder)

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
        raise pytest.UsageError(
            f"--lab-report: {folder} is not a folder\n  hint: write it last, or as --lab-report=DIR"
        )
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name != SUITE_REPORT and not path.name.startswith(".") and not (path / LOGS).is_dir():
            raise pytest.UsageError(
                f"--lab-report: {folder} holds other things than runs, such as {path.name}\n"
                "  hint: write the option last, or as --lab-report=DIR with a folder of its own"
            )
