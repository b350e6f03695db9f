"""Scripts that give out PyTorch's ranks by themselves: what is read speaks of the ranks of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.record.layout import TRACE
from lab.trace.model import Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def bare(folder: Path, world_size: int) -> TraceMaker:
    """Traces of ranks that have met nowhere."""
    made = TraceMaker(folder, world_size)
    for lines in made.lines.values():
        lines[:] = [line for line in lines if line["k"] != "group"]
    return made


def meet(made: TraceMaker, ranks: Mapping[int, int], at_ms: float = 0, size: int | None = None) -> None:
    """Ranks of the run make a default group, each as one of PyTorch's ranks."""
    for rank, own in ranks.items():
        told = list(range(size or len(ranks)))
        made.line(rank, "group", at_ms, g="0", ranks=told, backend="gloo", desc="default_pg", rank=own)
        made.seqs = {key: number for key, number in made.seqs.items() if key[0] != rank}


def subgroup(made: TraceMaker, name: str, ranks: list[int], *members: int, at_ms: float) -> None:
    """Ranks of the run make a group of these, which are PyTorch's."""
    for rank in members:
        made.line(rank, "mark", at_ms, n="new_group", e=0, at="train.py:3", g=name, ranks=ranks)
        made.line(rank, "group", at_ms, g=name, ranks=ranks, backend="gloo", desc="undefined")
        made.line(rank, "mark", at_ms, n="new_group", e=1)


def told(steps: list[Step]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(step.title, step.state, tuple(sorted(step.calls))) for step in steps]


def reversed_ranks(folder: Path) -> TraceMaker:
    made = bare(folder, 3)
    meet(made, {0: 2, 1: 1, 2: 0})
    for rank in range(3):
        made.call(rank, "broadcast", 1, 2, [[1.0]], [[1.0]], root=0)
    subgroup(made, "1", [0, 1], 0, 1, 2, at_ms=3)  # rank 0 marks that, too, and is not in it
    made.lines[0] = [line for line in made.lines[0] if line.get("g") != "1" or line["k"] != "group"]
    for rank in (1, 2):
        made.call(rank, "reduce", 4, 5, [[1.0]], [[1.0]], group="1", root=1, red="SUM")
    made.call(2, "send", 6, 7, [[1.0]], peer=1, tag=0)
    index = made.call(1, "recv", 6, None, (), [[1.0]], peer=-1, tag=0)
    made.line(1, "end", 7, i=index, ov=[[1.0]], peer=0)
    return made


STEPS_OF_REVERSED = [
    ("broadcast #1", "completed", (0, 1, 2)),
    ("reduce #1 in [2, 1]", "completed", (1, 2)),
    ("send 2 → 1", "completed", (1, 2)),
]


def test_roots_peers_and_groups_are_told_in_ranks_of_the_run(tmp_path: Path) -> None:
    trace = read_trace(reversed_ranks(tmp_path / "run").record())
    broadcast, reduce, message = steps = match_steps(trace)
    assert told(steps) == STEPS_OF_REVERSED
    assert (broadcast.source, broadcast.group.ranks) == (2, (2, 1, 0))
    assert (reduce.destination, message.source, message.destination) == (1, 2, 1)
    assert {mark.members for rank in trace.ranks.values() for mark in rank.phases} == {(2, 1)}
    assert trace.problems == []


def test_worlds_of_other_sizes_are_told_apart(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 3)
    meet(made, {0: 0})
    meet(made, {1: 0, 2: 1})
    for rank in range(3):
        made.call(rank, "broadcast", 1, 2, [[1.0]], [[1.0]], root=0)
    alone, together = match_steps(read_trace(made.record()))
    assert (alone.group.ranks, alone.source, alone.state) == ((0,), 0, "completed")
    assert (together.group.ranks, together.source, together.state) == ((1, 2), 1, "completed")
    assert [group.title for group in (alone.group, together.group)] == ["default [0]", "default [1, 2]"]


def test_worlds_of_one_size_are_told_apart_and_so_are_their_groups(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 4)
    meet(made, {0: 0, 1: 1})
    meet(made, {2: 1, 3: 0})
    for members in ((0, 1), (2, 3)):
        subgroup(made, "1", [0, 1], *members, at_ms=1)
        for rank in members:
            made.call(rank, "all_reduce", 2, 3, [[1.0]], [[2.0]], group="1", red="SUM")
    assert told(match_steps(read_trace(made.record()))) == [
        ("all_reduce #1 in [0, 1]", "completed", (0, 1)),
        ("all_reduce #1 in [3, 2]", "completed", (2, 3)),
    ]


def test_a_world_after_another_may_have_other_ranks(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 2)
    for at_ms, ranks in ((0, {0: 0, 1: 1}), (10, {0: 1, 1: 0}), (20, {0: 0, 1: 1})):
        meet(made, ranks, at_ms)
        for rank in range(2):
            made.call(rank, "broadcast", at_ms + 1, at_ms + 2, [[1.0]], [[1.0]], root=0)
    steps = match_steps(read_trace(made.record()))
    assert [step.source for step in steps] == [0, 1, 0]
    assert [step.group.label for step in steps] == ["default", "default (2nd)", "default (3rd)"]
    assert {step.state for step in steps} == {"completed"}


def test_who_was_first_in_a_world_of_its_own_is_found_in_the_next(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 3)
    meet(made, {0: 0, 1: 1})
    for rank in (0, 1):
        made.call(rank, "barrier", 1, 2)
    meet(made, {0: 0, 2: 1}, 3)
    for rank in (0, 2):
        made.call(rank, "barrier", 4, 5)
    assert [sorted(step.calls) for step in match_steps(read_trace(made.record()))] == [[0, 1], [0, 2]]


def test_who_left_no_trace_is_who_is_left(tmp_path: Path) -> None:
    made = bare(tmp_path / "run", 3)
    meet(made, {0: 1, 1: 2}, size=3)
    for rank in (0, 1):
        made.call(rank, "broadcast", 1, None, [[1.0]], root=0)
    record = made.record()
    (record.path / TRACE / "rank2.jsonl").unlink()
    [step] = match_steps(read_trace(record))
    assert (step.group.ranks, step.source, step.missing) == ((2, 0, 1), 2, (2,))


@pytest.mark.parametrize("own", ["0", 3, -1, None])
def test_a_rank_that_there_is_not_is_damage(tmp_path: Path, own: object) -> None:
    made = bare(tmp_path / "run", 2)
    meet(made, {0: 0, 1: 1})
    made.lines[1][-1]["rank"] = own
    assert read_trace(made.record()).problems == [golden(1)]


def test_a_trace_that_does_not_tell_it_reads_as_one_in_which_nothing_differs(tmp_path: Path) -> None:
    def read(folder: Path, tells: bool) -> Trace:
        made = bare(folder, 3)
        for at_ms, size in ((0, 3), (10, 2), (20, 3)):
            meet(made, {rank: rank for rank in range(size)}, at_ms)
            subgroup(made, "1", [0, 1], 0, 1, at_ms=at_ms + 1)
            for rank in range(size):
                made.call(rank, "broadcast", at_ms + 2, at_ms + 3, [[1.0]], [[1.0]], root=1)
            made.call(1, "send", at_ms + 4, at_ms + 5, [[1.0]], group="1", peer=0, tag=0)
            made.call(0, "recv", at_ms + 4, at_ms + 5, (), [[1.0]], group="1", peer=1, tag=0)
        for line in (line for lines in made.lines.values() for line in lines if line["k"] == "group" and not tells):
            line.pop("rank", None)
        return read_trace(made.record())

    assert read(tmp_path / "new", True) == read(tmp_path / "old", False)
