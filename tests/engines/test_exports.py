"""Runs of the library, written for other tools: torchfrtrace and the reader of Chakra's schema accept each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.export.chakra import chakra_traces
from lab.record.read import Record
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.engines.lessons import FILES, Lesson, runs_locally
from tests.features.export.chakra_schema import accept, read_trace_file
from tests.torchfrtrace import torchfrtrace, write_dumps

SHORT = ("beyond_ddp/pipeline",)
"""What the short run tries: collectives, messages and groups in one."""
LESSONS = [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in FILES if runs_locally(name)]


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize("name", LESSONS)
def test_a_run_is_read_by_torchfrtrace_and_by_the_reader_of_chakras_schema(
    name: str, lesson: Lesson, tmp_path: Path
) -> None:
    record = Record(path=lesson(name).path or tmp_path)
    trace = read_trace(record)
    if trace.recorded:
        torchfrtrace(write_dumps(record, tmp_path / "dumps"))
    for file, data in chakra_traces(trace, match_steps(trace)):
        (tmp_path / file).write_bytes(data)
        if file.endswith(".et"):
            accept(*read_trace_file(tmp_path / file))
