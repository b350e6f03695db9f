"""Snapshots of what ranks call, in a session of pytest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

pytestmark = pytest.mark.local
RING = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(int(sys.argv[1])):
    dist.barrier()
"""
TESTS = """
import pytest

@pytest.mark.parametrize("steps", [2, 3])
def test_ring(lab_run, steps):
    lab_run("ring.py", nodes=2, args=[str(steps)]).calls.matches_snapshot()

def test_one_more(cluster):
    result = cluster.run("ring.py", nodes=2, args=["3"])
    result.calls.matches_snapshot("test_it.test_ring-2.2x1.calls.txt")
"""


def test_each_test_has_its_own_and_what_changed_is_told_in_words(person: None, tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text(RING)
    (tmp_path / "test_it.py").write_text(TESTS)
    argv = pytest_words("--lab-engine=local", "test_it.py")
    environment = {**pytest_environment(), "CI": ""}
    ended = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170)
    assert "1 failed, 2 passed" in ended.stdout, ended.stdout
    assert golden(1) in ended.stdout
    assert golden(2) in ended.stdout
    assert "hold_against" not in ended.stdout
    assert sorted(path.name for path in tmp_path.glob("test_it.*.txt")) == [
        "test_it.test_ring-2.2x1.calls.txt",
        "test_it.test_ring-3.2x1.calls.txt",
    ]
