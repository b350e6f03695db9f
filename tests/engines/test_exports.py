"""Runs of the library, written for another tool: torchfrtrace accepts each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.record.read import Record
from lab.trace.read import read_trace
from tests.engines.lessons import FILES, Lesson, runs_locally
from tests.torchfrtrace import torchfrtrace, write_dumps

SHORT = ("beyond_ddp/pipeline",)
"""What the short run tries: collectives, messages and groups in one."""
LESSONS = [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in FILES if runs_locally(name)]


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize("name", LESSONS)
def test_a_run_is_read_by_torchfrtrace(name: str, lesson: Lesson, tmp_path: Path) -> None:
    record = Record(path=lesson(name).path or tmp_path)
    if read_trace(record).recorded:
        torchfrtrace(write_dumps(record, tmp_path / "dumps"))
