"""Groups made otherwise on some ranks, or destroyed while others use them, from made traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from lab.trace.read import read_trace
from tests.diagnosis.facts import exited, hang, raised, stack, stopped, told_facts, write_events
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.mark(rank, "init_process_group", 0.1, 0.5, at="train.py:3")
    return made


def new_group(
    made: TraceMaker, rank: int, ranks: list[int], begin_ms: float, end_ms: float | None, line: int, name: str = "1"
) -> None:
    made.line(rank, "mark", begin_ms, n="new_group", e=0, at=f"train.py:{line}", g=name, ranks=ranks)
    if end_ms is not None:
        if rank in ranks:
            made.line(rank, "group", end_ms, g=name, ranks=ranks, backend="gloo", desc="undefined")
        made.line(rank, "mark", end_ms, n="new_group", e=1)


def causes(made: TraceMaker) -> list[Finding]:
    return find_causes(read_evidence(made.record(stop=False)))


def test_a_rank_that_leaves_out_a_group_that_it_is_not_in_is_named(made: TraceMaker) -> None:
    for rank in (0, 1):
        new_group(made, rank, [0, 1], 1, 2, 13, "1")
        new_group(made, rank, [0, 1, 2], 3, None, 14, "2")
    new_group(made, 2, [0, 1, 2], 3, None, 14, "1")
    hang(made, *(stack(rank, 14, "new_group") for rank in range(3)))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("groups", (2,), (0, 1))
    assert found.lines == ("train.py:14", "train.py:13")
    assert told_facts(found) == {
        "number": 1,
        "sides": [{"ranks": [2], "what": "[0, 1, 2]", "lines": ["train.py:14"]}],
        "common": {"ranks": [0], "what": "[0, 1]", "lines": ["train.py:13"]},
        "slip": "left_out",
    }


def test_where_no_group_stopped_the_run_a_rank_may_leave_one_out(made: TraceMaker) -> None:
    for rank in (0, 1):
        new_group(made, rank, [0, 1], 1, 2, 13, "1")
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    hang(made, stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 37))
    assert [found.kind for found in causes(made)] == ["never_entered"]


@pytest.mark.parametrize("missing", [(2,), (1, 2)])
def test_members_that_never_come_to_new_group_are_named_or_the_one_that_came_alone(
    made: TraceMaker, missing: tuple[int, ...]
) -> None:
    came = tuple(rank for rank in range(3) if rank not in missing)
    for rank in came:
        new_group(made, rank, [0, 1, 2], 1, None, 13)
    for rank in missing:
        made.call(rank, "barrier", 1000, None, at="train.py:15")
    hang(made, *(stack(rank, 13, "new_group") if rank in came else stack(rank, 15, "barrier") for rank in range(3)))
    found, *_ = causes(made)
    named, lines = (
        ((0,), ("train.py:13", "train.py:15")) if len(missing) > 1 else ((2,), ("train.py:15", "train.py:13"))
    )
    assert (found.kind, found.ranks, found.lines) == ("groups", named, lines)
    waits = [
        {"rank": rank, "what": "waited", "call": {"rank": rank, "name": "barrier #1", "source": "train.py:15"}}
        for rank in missing
    ]
    assert told_facts(found) == {"members": [0, 1, 2], "missing": [*missing], "did": waits, "at": ["train.py:13"]}


def test_a_rank_that_makes_the_default_group_again_alone_is_named_in_a_hung_and_in_a_failed_run(
    made: TraceMaker,
) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:24")
    made.line(1, "mark", 900, n="destroy_process_group", e=0, g="0", at="train.py:20")
    made.line(1, "mark", 901, n="destroy_process_group", e=1)
    made.line(1, "mark", 902, n="init_process_group", e=0, at="train.py:21")
    hang(made, stack(0, 24, "all_reduce"), stack(1, 21, "init_process_group"), stack(2, 24, "all_reduce"))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("groups", (1,), (0, 2))
    assert found.lines == ("train.py:20", "train.py:24")
    assert told_facts(found) == {
        "gone": [1],
        "entered": [0, 2],
        "alone": False,
        "destroyed_at": ["train.py:20"],
        "used_at": ["train.py:24"],
        "waited_s": 7.0,
        "did": [
            {
                "rank": 1,
                "what": "stood",
                "stood": {"place": {"file": "train.py", "line": 21, "call": "init_process_group"}},
            }
        ],
    }

    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    write_events(made, *(raised(rank, lost, 24) for rank in (0, 2)), stack(1, 21, "init_process_group"), stopped(1))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert (verdict.verdict, verdict.culprit and verdict.culprit.rank) == ("failed", 1)


def test_of_two_ranks_one_that_calls_again_or_one_that_destroys_the_group_may_be_wrong(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in (0, 1):
        made.call(rank, "all_reduce", 100, 200, [[1.0]], [[2.0]], at="train.py:24")
    made.call(0, "all_reduce", 1000, None, [[1.0]], at="train.py:24")
    made.line(1, "mark", 900, n="destroy_process_group", e=0, g="0", at="train.py:25")
    made.line(1, "mark", 901, n="destroy_process_group", e=1)
    hang(made, stack(0, 24, "all_reduce"), stack(1, 26))
    assert [(found.kind, found.ranks) for found in causes(made)] == [("groups", ())]


def test_a_rank_that_failed_and_tidied_up_has_failed(made: TraceMaker) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:24")
    made.line(1, "mark", 900, n="destroy_process_group", e=0, g="0", at="train.py:30")
    made.line(1, "mark", 901, n="destroy_process_group", e=1)
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    write_events(made, raised(1, "KeyError: 'x'", 12, at=1), raised(0, lost, 24), raised(2, lost, 24))
    assert [(found.kind, found.ranks) for found in causes(made)] == [("failed", (1,))]


def test_a_rank_that_destroyed_its_group_and_ended_left_early(made: TraceMaker) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:24")
    made.line(1, "mark", 900, n="destroy_process_group", e=0, g="0", at="train.py:30")
    made.line(1, "mark", 901, n="destroy_process_group", e=1)
    write_events(
        made, stack(0, 24, "all_reduce"), stack(2, 24, "all_reduce"), stopped(0), stopped(2), exited(1, at=1.5)
    )
    assert [(found.kind, found.ranks) for found in causes(made)] == [("left_early", (1,))]


def test_groups_of_the_same_ranks_and_the_group_made_again_have_names_of_their_own(made: TraceMaker) -> None:
    for rank in (0, 1):
        for name, line in (("1", 10), ("2", 11)):
            new_group(made, rank, [0, 1], line, line + 0.5, line, name)
    made.group("0", range(3), 100, desc="default_pg")
    for rank, ranks in ((0, [0, 2]), (1, [1]), (2, [0, 2])):
        made.line(rank, "group", 110, g=f"x{ranks[0]}", ranks=ranks, backend="gloo", desc="mesh_data")
    groups = read_trace(made.record()).groups.values()
    assert [group.title for group in groups] == [
        "default", "[0, 1]", "[0, 1] (2nd)", "default (2nd)", "mesh_data [0, 2]", "mesh_data [1]",
    ]  # fmt: skip
    assert [group.source for group in groups][1:3] == ["train.py:10", "train.py:11"]
