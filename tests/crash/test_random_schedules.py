"""Random schedules of faults over six scenarios: each ends with a verdict in time, breaks nothing, leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PART_NAMED = 0.9
"""So many verdicts name who is to blame; what they miss is told by `dev/random_schedules.py`."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_every_random_schedule_ends_with_a_verdict_in_time_and_leaves_nothing(engine: str, tmp_path: Path) -> None:
    words = ["--engine", engine, "--count", "60", "--seconds", "1500", "--out", "told.jsonl", "--runs", "runs"]
    program = [sys.executable, str(ROOT / "dev" / "random_schedules.py"), *words]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=1700)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert len(told) == 60, ended.stdout[-4000:]
    assert sum(one["named"] for one in told) >= PART_NAMED * len(told), ended.stdout[-4000:]
