"""`--lab-report`: one HTML page of all runs of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError, UsageError
from lab.record.layout import LOGS, RUNS, SUITE_REPORT


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
        from lab.features.pytest.sections import RECORD

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
