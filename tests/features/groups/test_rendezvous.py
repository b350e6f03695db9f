"""Why ranks did not find each other: from the stores that they looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from lab.record.layout import PLAN
from tests.diagnosis.facts import exited, hang, raised, stack, stopped, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
RUN = ("10.0.0.1", 29500)


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    made = TraceMaker(tmp_path / "run", 3)
    plan = json.loads((made.path / PLAN).read_text())
    (made.path / PLAN).write_text(json.dumps({**plan, "master_addr": RUN[0], "master_port": RUN[1]}))
    return made


def look(
    made: TraceMaker, rank: int, address: tuple[str, int] = RUN, *, found: bool = True, said: int | None = None,
    world: int = 3, error: str = "",
) -> None:  # fmt: skip
    made.line(rank, "mark", 1, n="init_process_group", e=0, at="train.py:3")
    asked = {"host": address[0], "port": address[1], "rank": rank if said is None else said, "world": world}
    made.line(rank, "store", 2, e=0, at="train.py:3", **asked)
    if found or error:
        made.line(rank, "store", 3, e=1, **({"err": error} if error else {}))


def hung(made: TraceMaker) -> Finding:
    hang(made, *(stack(rank, 3, "init_process_group") for rank in range(3)))
    [finding] = find_causes(read_evidence(made.record(stop=False)))
    assert finding.kind == "rendezvous"
    return finding


def test_a_rank_that_looks_elsewhere_is_named_with_both_addresses(made: TraceMaker) -> None:
    for rank in (0, 1):
        look(made, rank)
    look(made, 2, ("10.0.0.1", 29999), found=False)
    finding = hung(made)
    assert finding.ranks == (2,)
    assert told_facts(finding) == {
        "how": "addresses",
        "sides": [{"ranks": [0, 1], "what": "at 10.0.0.1:29500"}, {"ranks": [2], "what": "at 10.0.0.1:29999"}],
        "silent": [2],
    }
    assert told_facts(finding) == {
        "how": "addresses",
        "sides": [{"ranks": [0, 1], "what": "at 10.0.0.1:29500"}, {"ranks": [2], "what": "at 10.0.0.1:29999"}],
        "silent": [2],
    }


def test_an_address_where_nobody_hosts_a_store(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, found=False)
    assert told_facts(hung(made)) == {"how": "unanswered", "address": "10.0.0.1:29500", "silent": [0, 1, 2]}


def test_a_store_that_is_there_and_peers_that_are_missing(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, world=4)
    finding = hung(made)
    assert finding.ranks == ()
    assert told_facts(finding) == {
        "how": "missing",
        "address": "10.0.0.1:29500",
        "met": [0, 1, 2],
        "world_size": 4,
        "run_size": 3,
        "missing": 1,
        "stuck": [0, 1, 2],
    }


def test_rank_0_that_hosts_its_own_store_is_not_said_to_have_none(made: TraceMaker) -> None:
    own = ("localhost", 12355)
    look(made, 0, own, found=False, world=4)
    for rank in (1, 2):
        look(made, rank, own, world=4)
    assert told_facts(hung(made)) == {
        "how": "missing",
        "address": "localhost:12355",
        "met": [0, 1, 2],
        "world_size": 4,
        "run_size": 3,
        "missing": 1,
        "stuck": [0, 1, 2],
    }


def test_more_ranks_than_the_world_has(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, world=2)
    finding = hung(made)
    assert finding.ranks == (2,)
    assert told_facts(finding) == {
        "how": "beyond",
        "address": "10.0.0.1:29500",
        "sides": [{"ranks": [2], "what": "2"}],
        "met": [0, 1, 2],
        "world_size": 2,
        "run_size": 3,
        "stuck": [0, 1, 2],
    }


def test_ranks_that_do_not_agree_on_the_world(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, world=2 if rank == 1 else 3)
    assert hung(made).ranks == (1,)


def test_two_that_say_to_be_the_same_rank(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, said=min(rank, 1))
    finding = hung(made)
    assert finding.ranks == ()
    assert told_facts(finding) == {
        "how": "same_rank",
        "address": "10.0.0.1:29500",
        "sides": [{"ranks": [1, 2], "what": "1"}],
    }


def test_a_rank_that_gave_up_looking_elsewhere_is_the_culprit_and_not_who_waited(made: TraceMaker) -> None:
    for rank in (0, 1):
        look(made, rank)
    error = "torch.distributed.DistNetworkError: The client socket has timed out after 5000ms"
    look(made, 2, ("10.0.0.1", 29999), error=error)
    wait = "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/rank_2"
    told = raised(0, wait, 3, 5.0)
    frame = '  File "/x/torch/distributed/distributed_c10d.py", line 9, in init_process_group\n'
    told["traceback"] = told["traceback"].replace(wait, f"{frame}{wait}")
    write_events(
        made, stack(1, 3, "init_process_group"), stack(2, 3, "init_process_group"), told, stopped(1), stopped(2)
    )
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 2


def test_who_never_came_is_named_with_where_it_was_when_the_others_gave_up(made: TraceMaker) -> None:
    for rank in (0, 2):
        look(made, rank)
    error = "torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /default_pg/0//cpu//0/rank_1"
    ends = []
    for rank in (0, 2):
        told = raised(rank, error, 3, 5.0)
        frame = '  File "/x/torch/distributed/distributed_c10d.py", line 9, in init_process_group\n'
        ends.append({**told, "traceback": told["traceback"].replace(error, f"{frame}{error}")})
    write_events(made, stack(1, 2), *ends, stopped(1))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 1
    assert golden(1) in verdict.reason


@pytest.mark.parametrize(
    ("error", "how"),
    [
        ("torch.distributed.DistStoreError: wait timeout after 1000ms, keys: /default_pg/0//cpu//0/1", "late"),
        ("RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:553] Connection closed by peer", "unconnected"),
    ],
)
def test_who_came_after_the_time_limit_of_another_rank_was_late(made: TraceMaker, error: str, how: str) -> None:
    ends = []
    for rank in (0, 2):
        look(made, rank)
        made.line(rank, "mark", 4, n="init_process_group", e=1)
        told = raised(rank, error, 3, 5.0)
        frame = '  File "/x/torch/distributed/distributed_c10d.py", line 9, in init_process_group\n'
        ends.append({**told, "traceback": told["traceback"].replace(error, f"{frame}{error}")})
    made.line(1, "mark", 8, n="init_process_group", e=0, at="train.py:3")
    made.line(1, "store", 8, e=0, at="train.py:3", host=RUN[0], port=RUN[1], rank=1, world=3)
    made.line(1, "store", 9, e=1)
    write_events(made, stack(1, 3, "init_process_group"), *ends, stopped(1))
    [found] = [
        one for one in judge_evidence(read_evidence(made.record(stop=False))).findings if one.kind == "rendezvous"
    ]
    assert (told_facts(found)["how"], found.ranks) == (how, (1,) if how == "late" else ())
    assert told_facts(found).get("late_s") == (pytest.approx(0.004) if how == "late" else None)


def test_of_rank_0_alone_nobody_knows_whether_it_hosts_a_store(made: TraceMaker) -> None:
    look(made, 0, ("localhost", 12355), found=False)
    hang(made, stack(0, 3, "init_process_group"), stack(1, 9), stack(2, 9))
    found = find_causes(read_evidence(made.record(stop=False)))
    assert not any("store" in finding.sentence for finding in found)


def test_ranks_that_got_out_of_the_rendezvous_had_come_to_it(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank)
        if rank != 1:
            made.line(rank, "mark", 4, n="init_process_group", e=1)
    error = "RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:553] Connection closed by peer [::1]:7"
    told = raised(1, error, 3, 5.0)
    frame = '  File "/x/torch/distributed/distributed_c10d.py", line 9, in init_process_group\n'
    write_events(made, {**told, "traceback": told["traceback"].replace(error, f"{frame}{error}")}, exited(0), exited(2))
    reason = judge_evidence(read_evidence(made.record(stop=False))).reason
    assert golden(1) not in reason
    assert golden(2) in reason


@pytest.mark.parametrize(("at", "named"), [(5.01, True), (9.0, False)])
def test_ranks_that_end_while_another_connects_are_named(made: TraceMaker, at: float, named: bool) -> None:
    for rank in range(3):
        look(made, rank)
        if rank != 1:
            made.line(rank, "mark", 4, n="init_process_group", e=1)
    made.line(2, "mark", 4.5, n="destroy_process_group", e=0, g="0", at="train.py:8")
    made.line(2, "mark", 4.6, n="destroy_process_group", e=1)
    error = "RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:553] Connection closed by peer [::1]:7"
    told = raised(1, error, 3, 5.0)
    frame = '  File "/x/torch/distributed/distributed_c10d.py", line 9, in init_process_group\n'
    ends = [exited(rank, at=at) for rank in (0, 2)]
    write_events(made, {**told, "traceback": told["traceback"].replace(error, f"{frame}{error}")}, *ends)
    judged = judge_evidence(read_evidence(made.record(stop=False)))
    assert ("ranks 0 and 2 ended without waiting" in judged.reason, judged.findings[0].ranks) == (named, ())


def entered(made: TraceMaker, rank: int, *, destroyed: bool = False) -> None:
    """It got out of init_process_group, and stays in a collective."""
    made.line(rank, "mark", 4, n="init_process_group", e=1)
    if destroyed:
        made.line(rank, "mark", 5, n="destroy_process_group", e=0, g="0", at="train.py:8")
        made.line(rank, "mark", 6, n="destroy_process_group", e=1)
    made.call(rank, "all_reduce", 10, None, [[1.0]], at="train.py:9")


def test_ranks_that_entered_worlds_of_different_sizes_do_not_wait_for_each_other(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, world=2 if rank == 1 else 3)
        if rank < 2:
            entered(made, rank)
    hang(made, *(stack(rank, 9, "all_reduce") for rank in (0, 1)), stack(2, 3, "init_process_group"))
    [finding] = find_causes(read_evidence(made.record(stop=False)))
    assert (finding.kind, finding.ranks) == ("rendezvous", (1,))
    assert told_facts(finding) == {
        "how": "sizes",
        "address": "10.0.0.1:29500",
        "sides": [{"ranks": [0, 2], "what": "3"}, {"ranks": [1], "what": "2"}],
    }


def test_a_world_that_a_rank_has_destroyed_is_not_compared(made: TraceMaker) -> None:
    for rank in range(3):
        look(made, rank, world=2 if rank == 1 else 3)
        entered(made, rank, destroyed=rank == 1)
    hang(made, *(stack(rank, 9, "all_reduce") for rank in range(3)))
    assert "rendezvous" not in [finding.kind for finding in find_causes(read_evidence(made.record(stop=False)))]


def test_ranks_that_meet_again_as_worlds_of_different_sizes_are_told(made: TraceMaker) -> None:
    """Rank 2 has left its only world; it expects nobody."""
    for rank in range(3):
        look(made, rank)
        made.line(rank, "group", 3, g="0", ranks=[0, 1, 2], backend="gloo", desc="default_pg", rank=rank)
        made.line(rank, "mark", 4, n="init_process_group", e=1)
        made.line(rank, "mark", 5, n="destroy_process_group", e=0, at="train.py:5", g="0")
        made.line(rank, "mark", 6, n="destroy_process_group", e=1)
    for rank in (0, 1):
        made.line(rank, "mark", 7, n="init_process_group", e=0, at="train.py:9")
        made.line(rank, "store", 8, e=0, at="train.py:9", host=RUN[0], port=29777, rank=rank, world=2 + rank)
        made.line(rank, "store", 9, e=1)
    made.line(0, "group", 10, g="0", ranks=[0, 1], backend="gloo", desc="default_pg", rank=0)
    made.line(0, "mark", 11, n="init_process_group", e=1)
    made.call(0, "all_reduce", 12, None, [[1.0]], at="train.py:10")
    hang(made, stack(0, 10, "all_reduce"), stack(1, 9, "init_process_group"), exited(2))
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert first.kind == "rendezvous"
    assert told_facts(first) == {
        "how": "sizes",
        "address": f"{RUN[0]}:29777",
        "sides": [{"ranks": [0], "what": "2"}, {"ranks": [1], "what": "3"}],
    }
