"""What is done to nodes, as programs in them see it: it is in force there, and gone once it is healed."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds import fault_kinds
from lab.features.faults.kinds.nodes import Pause
from tests.engines.conftest import MakeCluster, written

pytestmark = pytest.mark.half

Run = Callable[..., Result]
on_docker = pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)
CLOSED_PORT = 1


def cores() -> float | None:
    """What the kernel lets this rank's node have of the processor."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
    except FileNotFoundError:  # a kernel with the older control groups
        quota, period = (open(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").read() for name in ("quota", "period"))
    return os.cpu_count() if quota == "max" or int(quota) < 0 else int(quota) / int(period)


def used() -> float:
    """How many cores this rank has while it computes all the time."""
    began, ran = time.monotonic(), time.process_time()
    while time.monotonic() < began + 1:
        pass
    return (time.process_time() - ran) / (time.monotonic() - began)


def node_of(name: str) -> str:
    return socket.gethostbyname(name)


def reached(to: str, patience_s: float) -> str:
    """What becomes of a connection of rank 0 to a port of a node at which nobody listens."""
    import torch.distributed as dist

    if dist.get_rank() != 0:
        return ""
    with socket.socket() as asking:
        asking.settimeout(patience_s)
        try:
            asking.connect((to, CLOSED_PORT))
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "connected"


@on_docker
def test_a_node_has_less_of_the_processor_or_no_network_until_that_is_healed(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = make_cluster(nodes=3)
    try:
        all_of_them = cluster.call(cores)[0]
        with cluster.fault("cpu", "node1", "0.2"):
            assert cluster.call(cores) == [all_of_them, 0.2, all_of_them]
            assert cluster.call(used)[1] < 0.3  # it has its share for each 0.1 s at once, so perhaps one more
        assert cluster.call(cores) == [all_of_them] * 3

        third = cluster.call(node_of, "node2")[0]
        assert cluster.call(reached, third, 30.0)[0] == "ECONNREFUSED"
        with cluster.fault("disconnect", "node2"):
            assert cluster.call(reached, third, 1.0)[0] in ("TimeoutError", "EHOSTUNREACH")
        # A first packet that is lost while its neighbours learn of it is sent again after a second.
        assert cluster.call(reached, third, 30.0)[0] == "ECONNREFUSED"
        assert cluster.call(node_of, "node2")[0] == third
    finally:
        cluster.end_calls()
        cluster.heal()


BEATS = """\
import time
import torch
import torch.distributed as dist
from lab import note

dist.init_process_group("gloo")
rank = dist.get_rank()
longest, last, until = 0.0, time.monotonic(), time.monotonic() + 60
if rank == 1:
    dist.send(torch.ones(1), 0)
if rank == 0:
    dist.recv(torch.ones(1), 1)
    note("beats", 1)
while longest < 0.5 and last < until and rank == 1:
    time.sleep(0.01)
    before, last = last, time.monotonic()
    longest = max(longest, last - before)
note("stood_still", longest >= 0.5)
dist.barrier()
"""


def test_a_node_that_is_paused_stands_still_and_goes_on_once_it_is_healed(run: Run, tmp_path: Path) -> None:
    fault = Fault(what=Pause(node="node1"), when=When(rank=0, note="beats", equals=1), for_s=1.0)
    result = run(written(tmp_path, BEATS), faults=(fault,))
    assert result.passed, result.reason
    assert [rank.notes["stood_still"] for rank in result.ranks] == [False, True, False]


PEERS = """\
import socket
import torch.distributed as dist
from lab import note

dist.init_process_group("gloo")
listening = socket.create_server(("", 7010)) if dist.get_rank() == 1 else None
dist.barrier()
if listening is not None:
    listening.accept()[0].recv(1)
else:
    peer = socket.create_connection(("node1", 7010))
    note("connected", 1)
    peer.settimeout(0.3)
    try:
        note("saw", "closed" if peer.recv(1) == b"" else "data")
    except OSError as error:
        note("saw", type(error).__name__)
"""


@on_docker
@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        pytest.param("kill", ("closed", "ConnectionResetError"), marks=pytest.mark.long),
        pytest.param("stop", ("closed", "ConnectionResetError"), marks=pytest.mark.long),
        pytest.param("restart", ("closed", "ConnectionResetError", None), marks=pytest.mark.long),  # it may be over
        ("power_off", ("TimeoutError",)),
    ],
)
def test_peers_of_a_node_that_goes_are_told_so_or_not_and_it_is_back_for_the_next_run(
    run: Run, make_cluster: MakeCluster, tmp_path: Path, kind: str, seen: tuple[str, ...]
) -> None:
    cluster: Cluster = make_cluster(nodes=3)
    fault = Fault(what=fault_kinds()[kind](node="node1"), when=When(rank=0, note="connected", equals=1))  # type: ignore[call-arg]
    result = run(written(tmp_path / "s", PEERS), on=cluster, nodes=2, faults=(fault,))
    assert [told["failed"] for told in result.faults] == [""]
    assert result.ranks[0].notes.get("saw") in seen
    assert result.culprit is not None
    assert result.culprit.node == "node1"

    assert cluster.faults() == []
    after = run(
        written(tmp_path / "t", "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"),
        on=cluster,
        nodes=2,
    )
    assert after.passed, after.reason
