"""How programs end: nobody waits for a rank that has failed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

Mpiexec = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError: a mistake on rank 1"),
        pytest.param("exit", "", marks=pytest.mark.long),
        pytest.param("kill", "", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_fails_ends_the_others(mpiexec: Mpiexec, how: str, said: str) -> None:
    run = mpiexec(2, "ending.py", how)
    assert run.returncode not in (0, 124)
    assert said in run.stderr or not run.stderr  # on a busy machine mpiexec ends all before it has passed it on
    assert "went on" not in run.stdout


@pytest.mark.long
def test_ranks_may_leave_without_destroying_anything(mpiexec: Mpiexec) -> None:
    run = mpiexec(2, "ending.py", "leave")
    assert run.returncode == 0, run.stderr
    # What two ranks print at once may stand on one line: Python writes the end of a line by itself.
    assert sorted(re.findall(r"rank \d is done", run.stdout)) == ["rank 0 is done", "rank 1 is done"]
