"""What a script in a container cannot do, and that nothing of it is left for the next run."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from lab import Cluster, Result
from lab.spec.scenario import Expect

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
pytestmark = [pytest.mark.docker, pytest.mark.parametrize("engine", ["docker"], indirect=True)]


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_nothing_of_what_no_script_may_do_succeeds(run: Run, cold: bool) -> None:
    result = run("attempts.py", nodes=1, nproc_per_node=2, cold=cold)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        agents, others = rank.notes["neighbours"]
        assert agents >= 2, "an init and an agent are there to be attacked"
        assert others >= 2, "another rank and the store are"
        assert rank.notes["done"] == []
        assert len(rank.notes["refused"]) > 40
        assert "forged" not in rank.notes


def test_ranks_that_are_one_user_are_still_not_the_agent(run: Run) -> None:
    result = run("attempts.py", nodes=1, nproc_per_node=2, one_user=True)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        assert set(rank.notes["done"]) <= {"notes_for_another_rank"}, "that is the price"


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_what_a_script_leaves_anywhere_is_gone_before_the_next(run: Run, cold: bool) -> None:
    left = run("leaves.py", nodes=1, nproc_per_node=2, cold=cold)
    assert left.passed, left.reason + left.ranks[0].log
    for rank in left.ranks:
        assert {"/tmp", "/var/tmp", "/run/lock", "/dev/shm", "/dev/mqueue"} & set(rank.notes["places"])
        assert rank.notes["made in the kernel"] == [True] * 4

    looked = run("looks.py", nodes=1)

    assert looked.passed, looked.reason + looked.ranks[0].log
    assert looked.ranks[0].notes["strange"] == []
    assert looked.ranks[0].notes["open to all"] == []


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_a_script_cannot_make_its_check_pass(run: Run, cold: bool) -> None:
    result = run("forges.py", nodes=1, nproc_per_node=2, cold=cold, expect=Expect(check="verify.py:check"))

    assert result.verdict == "failed"
    assert result.reason == ("check verify.py:check: expected 'it passes', got 'AssertionError: wrong: [41, 41]'"), (
        result.reason
    )


def test_more_processes_than_a_node_may_have_are_refused_and_told(run: Run, make_cluster: MakeCluster) -> None:
    small = make_cluster(nodes=1, processes=120)

    for what in ("processes", "bomb"):
        result = run("floods.py", what, 0, on=small)

        assert result.passed, result.reason
        assert result.reason.endswith("; node0 reached its limit of 120 processes and threads"), result.reason


@pytest.mark.long
def test_small_processes_that_take_all_memory_are_told_as_one_that_does(run: Run, make_cluster: MakeCluster) -> None:
    small = make_cluster(nodes=1, memory_bytes=512 * 2**20)

    result = run("floods.py", "memory", 0, on=small, timeout_s=20.0)

    assert "for lack of memory" in result.reason
    assert "512 MiB" in result.reason


def test_a_strict_cluster_leads_nowhere_and_cannot_fill_the_machine(run: Run, make_cluster: MakeCluster) -> None:
    strict = make_cluster(nodes=2, strict=True)
    info = strict.info()
    assert info is not None
    networks = strict.engine.connection.api.networks(names=[f"lab-{strict.name}", "bridge"])  # type: ignore[attr-defined]
    gateways = [config["Gateway"] for network in networks for config in network["IPAM"]["Config"]]
    assert len(gateways) >= 2, "addresses of this machine"
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        result = run("confined.py", *gateways, port, on=strict)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        notes = dict(rank.notes)
        assert notes.pop("total") == [2.0]
        assert notes.pop("reached") == []
        assert set(notes.values()) == {256 * 2**20}, notes
