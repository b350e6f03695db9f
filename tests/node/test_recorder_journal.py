"""The lines of a trace, and when there are none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lab.node.recorder.journal import Journal, clock_id
from tests.golden import golden


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace"


@pytest.fixture
def journal(path: Path) -> Journal:
    journal = Journal()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    journal.open(fd, rank=3, recorder="python", torch="2.0", values=7)
    return journal


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_line_says_whose_trace_it_is(journal: Journal, path: Path) -> None:
    [start] = lines(path)
    assert {key: start[key] for key in ("k", "format", "rank", "pid", "boot", "recorder", "torch", "values")} == {
        "k": "start", "format": 1, "rank": 3, "pid": os.getpid(), "boot": clock_id(), "recorder": "python",
        "torch": "2.0", "values": 7,
    }  # fmt: skip
    assert start["t"] > 0
    assert start["wall"] > 1.7e18


def test_the_last_line_says_how_it_ended_and_nothing_follows_it(journal: Journal, path: Path) -> None:
    journal.add("mark", n="forward", e=0)
    journal.close()
    journal.add("mark", n="forward", e=1)
    journal.cut("too late")
    assert [line["k"] for line in lines(path)] == ["start", "mark", "stop"]


@pytest.mark.parametrize(("was_on", "last"), [(True, ["stop"]), (False, [])])
def test_lines_go_through_the_compiled_recorder_until_it_gives_the_file_back(
    journal: Journal, path: Path, was_on: bool, last: list[str]
) -> None:
    put: list[bytes] = []
    journal.write_through(put.append, lambda: was_on)
    journal.add("mark", n="forward", e=0)
    assert [json.loads(line)["k"] for line in put] == ["mark"]
    journal.close()
    assert len(put) == 1
    assert [line["k"] for line in lines(path)] == ["start", *last]


def test_a_reason_for_an_early_end_may_be_any_text(journal: Journal, path: Path) -> None:
    journal.cut('a "quoted" reason\nwith \udcff in it')
    assert lines(path)[-1]["why"].startswith(golden(1))


def test_a_disk_that_is_full_ends_the_recording_and_not_the_script() -> None:
    journal = Journal()
    journal.open(os.open("/dev/full", os.O_WRONLY), rank=3, recorder="python", torch="2.0", values=7)
    assert not journal.on
    journal.add("mark", n="forward", e=0)
