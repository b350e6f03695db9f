"""Processes that a script starts meet at the address that the script chooses, and at the run's if it chooses none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from lab import Result

long = pytest.mark.long
MEETINGS = ("env: 3", "tcp: 3", "by hand: 3", "rpc: 3", "inherited: 3")


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("fork", {}),
        pytest.param("spawn", {}, marks=long),
        pytest.param("program", {}, marks=long),
        pytest.param("spawn", {"cold": True}, marks=long),
        pytest.param("fork", {"cold": True, "trace": False}, marks=long),
        pytest.param("program", {"trace": False}, marks=long),
    ],
)
def test_processes_of_a_worker_meet_in_every_way(
    run: Callable[..., Result], how: str, options: dict[str, bool]
) -> None:
    result = run("own_stores.py", how, nodes=1, **options)

    assert result.passed, result.reason + result.ranks[0].log
    said = Counter(result.ranks[0].log.splitlines())
    assert {meeting: said[meeting] for meeting in MEETINGS} == dict.fromkeys(MEETINGS, 2)
