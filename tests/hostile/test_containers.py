"""What a script in a container cannot do, and that nothing of it is left for the next run."""

from __future__ import annotations

import io
import ipaddress
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import Cluster, Result
from lab.node.messages.agent import FIRST_UID
from lab.node.users import first_uid_of
from lab.polling import poll_until
from lab.spec.scenario import Expect
from tests.engines.conftest import scenario_of
from tests.golden import golden
from tests.hostile.conftest import HERE

if TYPE_CHECKING:
    import docker

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
MIB = 1 << 20
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
        assert len(rank.notes["refused"]) > 100
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
        assert rank.notes["made in the kernel"]

    looked = run("looks.py", nodes=1)

    assert looked.passed, looked.reason + looked.ranks[0].log
    assert looked.ranks[0].notes["strange"] == []
    assert looked.ranks[0].notes["open to all"] == []


def test_a_strict_node_has_nothing_of_an_earlier_run_in_its_memory(run: Run, make_cluster: MakeCluster) -> None:
    strict = make_cluster(nodes=1, strict=True)
    left = run("remembers.py", "leaves", on=strict)
    assert left.passed, left.reason

    looked = run("remembers.py", "looks", on=strict)

    assert looked.passed, looked.reason + looked.ranks[0].log
    assert looked.ranks[0].notes == {"own": True, "of others": []}


def test_a_process_of_one_node_changes_no_file_of_another_once_that_is_clean(run: Run) -> None:
    for act, check in (("waits", None), ("writes", "passes_files.py:check")):
        assert run("passes_files.py", act, expect=Expect(check=check)).passed, act

        looked = run("passes_files.py", "looks", nodes=1)

        assert looked.passed, looked.reason
        assert looked.ranks[0].notes["strange"] == [], act


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_a_script_cannot_make_its_check_pass(run: Run, cold: bool) -> None:
    result = run("forges.py", nodes=1, nproc_per_node=2, cold=cold, expect=Expect(check="verify.py:check"))

    assert result.verdict == "failed"
    wrong = "check verify.py:check: AssertionError: wrong: [41, 41]"
    alone = "rank 0 (node0) exited with code 1" if cold else wrong  # a fresh interpreter is caught at its forged report
    assert result.reason.startswith((wrong, alone)), result.reason


def test_more_processes_than_a_node_may_have_are_refused_and_told(run: Run, make_cluster: MakeCluster) -> None:
    small = make_cluster(nodes=1, processes=120)

    for what in ("processes", "bomb", "threads"):
        result = run("floods.py", what, 0, on=small)

        assert result.passed, result.reason
        assert golden(1) in result.reason, result.reason


@pytest.mark.long
def test_small_processes_that_take_all_memory_are_told_as_one_that_does(run: Run, make_cluster: MakeCluster) -> None:
    small = make_cluster(nodes=1, memory_bytes=512 * 2**20)

    result = run("floods.py", "memory", 0, on=small, timeout_s=20.0)

    assert golden(1) in result.reason
    assert "512 MiB" in result.reason


def test_a_strict_cluster_leads_nowhere_and_cannot_fill_the_machine(run: Run, make_cluster: MakeCluster) -> None:
    strict = make_cluster(nodes=2, strict=True)
    info = strict.info()
    assert info is not None
    networks = strict.engine.connection.api.networks(names=[f"lab-{strict.name}", "bridge"])  # type: ignore[attr-defined]
    subnets = [config["Subnet"] for network in networks for config in network["IPAM"]["Config"]]
    gateways = [str(ipaddress.ip_network(subnet)[1]) for subnet in subnets]  # an engine may not name its first one
    assert len(gateways) >= 2, "addresses of this machine"
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        result = run("confined.py", *gateways, port, on=strict)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        notes = dict(rank.notes)
        assert notes.pop("total") == [2.0]
        assert notes.pop("reached") == []
        assert notes.pop("user") == first_uid_of(strict.name) != FIRST_UID, (
            "what the kernel counts for each is not shared"
        )
        assert set(notes.values()) == {256 * 2**20}, notes


@pytest.mark.long
def test_small_programs_as_precious_as_the_agent_do_no_more_than_end_their_own_run(
    run: Run, make_cluster: MakeCluster
) -> None:
    small = make_cluster(nodes=1, memory_bytes=512 * MIB)

    result = run("floods.py", "small programs", 0, on=small, timeout_s=30.0)

    assert "memory" in result.reason, result.reason


@pytest.mark.long
@pytest.mark.parametrize("what", ["shm", "trace"])
def test_memory_that_outlives_its_writer_is_counted_and_given_back(
    run: Run, make_cluster: MakeCluster, what: str
) -> None:
    small = make_cluster(nodes=1, memory_bytes=512 * MIB)

    result = run("floods.py", what, 1024 * MIB, on=small)

    told = {"shm": "out of memory", "trace": "of trace that its agent had not sent yet; the rest is dropped"}
    assert told[what] in result.reason or golden(1) in result.reason, result.reason


@pytest.mark.parametrize("what", ["disk", pytest.param("files without a name", marks=pytest.mark.long)])
def test_who_writes_more_to_the_disk_than_a_run_may_is_ended_and_told(
    run: Run, make_cluster: MakeCluster, what: str
) -> None:
    small = make_cluster(nodes=1, nproc_per_node=2, disk_bytes=64 * MIB)

    result = run("floods.py", what, 4096 * MIB, on=small)

    assert result.verdict == "failed"
    assert golden(1) in result.reason


@pytest.fixture
def open_image(node_image: str, docker_engine: docker.DockerClient) -> Iterator[str]:
    """An image whose author has left some of it open to all."""
    name = f"lab-test-open-{os.getpid()}"
    lines = (
        f"FROM {node_image}",
        "RUN mkdir -p /opt/app/program && echo x > /opt/app/program/main.py && echo x > /opt/app/tool.py"
        " && echo x > /opt/settings && chmod 777 /opt/app && chmod 666 /opt/settings",
    )
    docker_engine.images.build(fileobj=io.BytesIO("\n".join(lines).encode()), tag=name, rm=True)
    yield name
    docker_engine.images.remove(name, force=True)


@pytest.mark.long
def test_what_a_script_changes_in_an_image_that_lets_it_is_not_there_in_the_next_run(
    open_image: str, run: Run, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(nodes=1, image=open_image)
    nodes = []
    for what in ("leaves", "leaves", "moves", "replaces", "writes", "nothing"):
        result = run("changes_its_image.py", what, on=cluster)

        assert result.passed, result.reason
        assert result.ranks[0].notes == {"was": ["program", "tool.py"], "program": "x\n", "settings": "x\n"}
        info = cluster.info()
        assert info is not None
        nodes.append(info.nodes[0].handle)
    assert [earlier != later for earlier, later in itertools.pairwise(nodes)] == [False, False, True, True, True]


_TAKE_MEMORY = """
for process in /proc/[0-9]*; do [ $process = /proc/$$ ] || echo 1000 >$process/oom_score_adj; done
exec python3 -c 'held = [b"x" * (1 << 22) for _ in range(10_000)]'
"""
"""As root in a container: have the kernel kill the agent, and not this."""


@pytest.mark.sample(1)  # one look at what ended a container
@pytest.mark.parametrize("ended_by", ["kill", "out of memory"])
def test_what_ended_a_node_is_told_whatever_the_kernel_killed_before(
    engine: str, tmp_path: Path, ended_by: str
) -> None:
    name = f"lab-test-memory-{os.getpid()}"
    with Cluster(name=name, engine=engine, nodes=1, memory_bytes=512 * MIB) as cluster:
        flood = scenario_of(HERE / "floods.py", "memory", 0, timeout_s=3.0)
        assert golden(1) in cluster.run(flood, runs=tmp_path).reason
        info = cluster.info()
        assert info is not None
        node, connection = info.nodes[0], cluster.engine.connection  # type: ignore[attr-defined]

        if ended_by == "kill":
            connection.act(node.handle, "kill")
        else:
            made = connection.api.exec_create(node.handle, ["/bin/sh", "-c", _TAKE_MEMORY])
            connection.api.exec_start(made["Id"])
            assert poll_until(lambda: not cluster.engine.node_state(node).running, 20.0)

        assert connection.inspect(node.handle)["State"]["OOMKilled"], "the engine does not forget it"
        state = cluster.engine.node_state(node)
        assert state.out_of_memory == (ended_by != "kill")
        assert ("memory" in state.sentence()) == (ended_by != "kill"), state.sentence()
