"""The files that `lab test` writes when a suite is over."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.features.suite.outcome import SuiteResult

if TYPE_CHECKING:
    from lab.features.compare.baseline import Baseline


def write_files(
    found: SuiteResult,
    began: float,
    compared: Baseline | None = None,
    *,
    junit: Path | None,
    markdown: Path | None,
    html: Path | None,
) -> None:
    """Write those that were asked for, and say which; `compared`: what these runs do worse than earlier ones.

    Raises:
        LabError: one cannot be written.
    """
    from lab.features.suite.junit import junit_xml
    from lab.features.suite.markdown import markdown as as_markdown

    made: list[tuple[Path | None, Callable[[], str]]] = [
        (junit, lambda: junit_xml(found, began, compared)),
        (markdown, lambda: as_markdown(found, compared)),
    ]
    for path, text in made:
        if path is not None:
            _write(path, text())
    if html is not None:
        _write_page(found, html)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", "name another file") from error
    sys.stderr.write(f"  written: {path}\n")


def _write_page(found: SuiteResult, path: Path) -> None:
    """One page of all runs, which leads to the report of each."""
    from lab.features.records.records import Suite
    from lab.features.suite.page import write_suite
    from lab.record.read import Record

    results = [attempt.result for outcome in found.outcomes for attempt in outcome.attempts]
    records = tuple(Record(path=result.path) for result in results if result.path is not None)
    if not records:
        sys.stderr.write(f"  {path} is not written: no run left a record\n")
        return
    planned = sum(not outcome.case.skipped for outcome in found.outcomes) + found.not_run
    page = write_suite(Suite(name=found.suite, records=records, planned=planned), path)
    sys.stderr.write(f"  written: {page.path}\n")
