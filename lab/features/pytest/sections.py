"""What a test that failed shows of its runs: verdict, culprit, the last lines of each rank, and where the record is."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

import pytest

import lab
from lab.errors import LabError, RanksFailed
from lab.features.pytest.collect import ScenarioItem
from lab.features.pytest.last_lines import last_lines_text
from lab.features.pytest.pool import Pool
from lab.features.pytest.stash import POOL
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.report.style import Style
from lab.report.verdict import verdict_text

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
