"""What a rank says beyond its limit is dropped; the verdict names the limit, and the record says what is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result
from lab.node.messages.agent import Limited
from lab.record.read import Record
from tests.golden import golden

Run = Callable[..., Result]
MIB = 2**20


def test_output_beyond_its_limit_is_dropped_and_told(run: Run) -> None:
    result = run("floods.py", "output", 3_000_000, nodes=1, nproc_per_node=2, output_bytes=MIB)

    assert result.passed, result.reason
    for rank in (0, 1):
        assert golden(1, rank) in result.reason
        assert len(result.ranks[rank].log) == MIB
    assert result.path is not None
    told = [event for event in Record(path=result.path).events() if isinstance(event, Limited)]
    assert {(one.rank, one.what, one.limit, one.excess) for one in told} == {
        (rank, "output", MIB, 3_000_000 - MIB) for rank in (0, 1)
    }


@pytest.mark.long
def test_notes_beyond_their_limit_are_dropped_and_told(run: Run) -> None:
    result = run("floods.py", "notes", 80_000_000, nodes=1)

    assert result.passed, result.reason
    assert golden(1) in result.reason
