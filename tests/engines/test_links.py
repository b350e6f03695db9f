"""Links of containers, broken on purpose: what packets meet, as programs in the nodes see it, and that it ends."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster
from lab.errors import LabError, UsageError
from lab.spec.load import load_scenario
from tests.engines.conftest import MakeCluster
from tests.golden import golden
from tests.rates import reaches

on_docker = pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)
on_local = pytest.mark.parametrize("engine", ["local"], indirect=True)
PORT = 7000
CLOSED_PORT = 1


@pytest.fixture
def called(make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of three nodes whose ranks are there all the time, and whose records are the test's."""
    monkeypatch.chdir(tmp_path)
    cluster = make_cluster(nodes=3)
    yield cluster
    cluster.end_calls()
    cluster.heal()


def address() -> str:
    import torch.distributed as dist  # by ranks only: all processes that run tests import this module

    dist.barrier()
    return socket.gethostbyname(socket.gethostname())


def tried(own_rank: int, to: str, timeout_s: float = 20.0) -> str:
    """What becomes of a connection of one rank to a port of a node at which nobody listens."""
    import torch.distributed as dist

    if dist.get_rank() != own_rank:
        return ""
    with socket.socket() as asking:
        asking.settimeout(timeout_s)
        try:
            asking.connect((to, CLOSED_PORT))
        except OSError as error:
            return type(error).__name__
    return "connected"


def undone(own: str) -> int:
    """What the kernel says to a worker of rank 0 that takes back what its node's links are like; 0: it did."""
    import torch.distributed as dist

    if dist.get_rank() != 0:
        return 0
    from labnode.node.netlink import find_device  # type: ignore[import-not-found]

    delete_queue, root = 37, 0xFFFFFFFF
    body = struct.pack("=BxHiIII", 0, 0, find_device(own), 0x1A0 << 16, root, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(20.0)
        kernel.send(struct.pack("=IHHII", 16 + len(body), delete_queue, 5, 1, 0) + body)
        return -int(struct.unpack_from("=i", kernel.recv(4096), 16)[0])


def named(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        return type(error).__name__


def listens() -> None:
    """Rank 1 waits for datagrams, and for a connection."""
    import torch.distributed as dist

    if dist.get_rank() == 1:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("", PORT))
        socket.kept = datagrams, socket.create_server(("", PORT))  # type: ignore[attr-defined]


def across(to: str, count: int) -> int:
    """How many datagrams of rank 0 arrive at rank 1, which answers each; a few at a time, so that none waits long.

    Rank 0 says how many answers there were, up to as many as it sent.
    """
    import torch.distributed as dist

    end = b"end %d" % count  # not that of a call before
    if dist.get_rank() == 1:
        datagrams, arrived = socket.kept[0], 0  # type: ignore[attr-defined]
        while (got := datagrams.recvfrom(200))[0] != end:
            if got[0] == b"x":
                datagrams.sendto(b"x", got[1])
                arrived += 1
        return arrived
    if dist.get_rank() != 0:
        return 0
    answered = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        for first in range(0, count, 50):
            for _ in range(min(50, count - first)):
                sending.sendto(b"x", (to, PORT))
            last = first + 50 >= count
            sending.settimeout(1.0 if last else 0.02)
            try:
                while not last or answered < count:
                    sending.recv(10)
                    answered += 1
            except TimeoutError:
                pass
        for _ in range(30):  # one of them arrives
            sending.sendto(end, (to, PORT))
    return answered


def rate(to: str, size: int) -> float:
    """Bits a second that rank 1 gets of rank 0."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        with socket.create_connection((to, PORT)) as sending:
            sending.sendall(b"x" * size)
    if dist.get_rank() != 1:
        return 0.0
    taking, _ = socket.kept[1].accept()  # type: ignore[attr-defined]
    got, began = 0, time.monotonic()
    while got < size:
        got += len(taking.recv(1 << 16))
    taking.close()
    return got * 8 / (time.monotonic() - began)


@on_docker
def test_what_links_are_asked_to_do_is_done_and_ends(called: Cluster) -> None:
    """In one go, for the ranks are there: a rate, loss, duplicates, a partition, resets and names."""
    here, there, third = called.call(address)
    called.call(listens)

    with called.fault("rate", "node0 -> node1 40mbit") as slow:
        assert reaches(lambda: called.call(rate, there, 3_000_000)[1], 4e7)
        assert called.call(undone, here)[0] == errno.EPERM
    assert slow.measured.get("bits_per_s", 4e7) == pytest.approx(4e7, rel=0.1)
    assert max(called.call(rate, there, 10_000_000)[1] for _ in range(3)) > 6e7

    with called.fault("loss", "node0 -> node1 20%") as lossy:
        arrived = called.call(across, there, 1000)[0]
        assert abs(arrived - 800) < 5 * (1000 * 0.2 * 0.8) ** 0.5
        assert lossy.what.count_effects(lossy.target)["lost_packets"] >= 1000 - arrived
    assert called.call(across, there, 200)[0] == 200

    with called.fault("duplicate", "node0 -> node1 30%"):
        arrived = called.call(across, there, 990)[1]
        assert abs(arrived - 990 * 1.3) < 5 * (990 * 0.3 * 0.7) ** 0.5
    assert called.call(across, there, 210) == [210, 210, 0]

    with called.fault("partition", "isolate node2") as cut:
        assert called.call(tried, 0, third, 0.5)[0] == "TimeoutError"
        assert called.call(tried, 2, here, 0.5)[2] == "TimeoutError"
        assert called.call(tried, 0, there)[0] == "ConnectionRefusedError"
        assert cut.what.count_effects(cut.target)["dropped_packets"] >= 2
    assert called.call(tried, 0, third)[0] == "ConnectionRefusedError"

    with called.fault("dns", "node1"):
        assert called.call(named, "node0")[1] == "gaierror"
        assert called.call(named, "node1")[0] == there
    assert called.call(named, "node0")[1] == here
    assert called.faults() == []


@on_docker
def test_a_run_on_another_network_measures_it_and_leaves_none(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "across.py").write_text(
        "import time, torch, torch.distributed as dist, lab\n"
        "dist.init_process_group('gloo')\n"
        "data = torch.zeros(750_000)\n"
        "dist.barrier()\n"
        "began = time.monotonic()\n"
        "dist.send(data, 1) if dist.get_rank() == 0 else dist.recv(data, 0) if dist.get_rank() == 1 else None\n"
        "lab.note('took_s', time.monotonic() - began)\n"
        "dist.barrier()\n"
    )
    (tmp_path / "across.yaml").write_text("nodes: 3\nscript: across.py\nnetwork: {rate: 40mbit}\n")

    result = cluster.run(load_scenario(tmp_path / "across.yaml"), runs=tmp_path / "runs")

    assert result.verdict == "passed", result.reason
    took_s = next(rank.notes["took_s"] for rank in result.ranks if rank.rank == 1)
    assert 24e6 / took_s < 4.4e7
    (network,) = result.faults
    assert network["fault"] == "network rate 40mbit"
    assert network["found"].get("bits_per_s", 4e7) == pytest.approx(4e7, rel=0.1)
    assert cluster.faults() == []


@on_docker
@pytest.mark.long
def test_connections_are_reset(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(5):\n"
        "    dist.all_reduce(torch.ones(1000))\n"
    )
    (tmp_path / "sums.yaml").write_text(
        "nodes: 3\nscript: sums.py\n"
        "faults:\n- reset: node2\n  when: {rank: 0, op: all_reduce, count: 3}\n"
        "expect: {verdict: failed}\n"
    )

    result = cluster.run(load_scenario(tmp_path / "sums.yaml"), runs=tmp_path / "runs")

    assert result.verdict == "passed", result.reason
    assert result.faults[0]["found"]["reset_connections"] > 0


@on_docker
@pytest.mark.long
def test_a_node_that_comes_back_is_on_the_same_network(cluster: Cluster) -> None:
    with cluster.fault("rate", "all 40mbit") as slow:
        with cluster.fault("kill", "node2"):
            pass
        assert slow.what.read_back(slow.target)["in_force"]
    assert cluster.faults() == []


@on_local
def test_without_links_of_their_own_nodes_cannot_be_cut_off(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("")
    (tmp_path / "none.yaml").write_text("nodes: 3\nscript: none.py\nnetwork: lan-1g\n")

    with pytest.raises(UsageError, match=golden(1)):
        cluster.run(load_scenario(tmp_path / "none.yaml"), runs=tmp_path / "runs")
    with pytest.raises(LabError, match=golden(2)):
        cluster.fault("partition", "isolate node2")
