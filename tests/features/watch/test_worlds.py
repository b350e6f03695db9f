"""Scripts that give out PyTorch's ranks by themselves, watched while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.features.watch.tail import TraceTail
from tests.trace.test_worlds import STEPS_OF_REVERSED, bare, meet, reversed_ranks, told
from tests.traces import TraceMaker


def steps_once_heard(made: TraceMaker, rank: int) -> Any:
    """The steps of a run that was looked at before a rank had told anything."""
    late, made.lines[rank] = made.lines[rank], made.lines[rank][:1]
    tail = TraceTail(made.record(stop=False))
    tail.poll()
    tail.steps()
    made.lines[rank] = late
    made.record(stop=False)
    tail.poll()
    return tail.steps()


def test_a_run_that_goes_on_is_told_in_its_ranks_once_all_members_were_heard(tmp_path: Path) -> None:
    made = reversed_ranks(tmp_path / "run")
    assert told(steps_once_heard(made, 2)) == STEPS_OF_REVERSED


def test_steps_follow_where_nothing_but_a_member_is_new(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 2)
    meet(made, {0: 1, 1: 0})
    made.call(0, "broadcast", 1, None, [[1.0]], root=0)
    made.call(0, "recv", 2, None, (), [[1.0]], peer=0, tag=0)
    broadcast, message = steps_once_heard(made, 1)
    assert (broadcast.source, broadcast.missing, message.title) == (1, (1,), "send 1 → 0")


def test_a_call_that_is_held_is_told_in_ranks_of_the_run_too(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 2)
    meet(made, {0: 1, 1: 0})
    made.line(0, "hold", 1, i=1, op="send", g="0", peer=0, tag=0, **{"in": [["float32", [1]]]})
    late, made.lines[1] = made.lines[1], made.lines[1][:1]
    tail = TraceTail(made.record(stop=False))
    tail.poll()
    made.lines[1] = late
    made.record(stop=False)
    tail.poll()
    assert [step.title for step in tail.steps_ahead()] == ["send 0 → 1"]
