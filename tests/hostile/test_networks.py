"""What nodes reach of this machine and of other clusters, with real listeners: a strict node reaches its peers only."""

from __future__ import annotations

import ipaddress
import itertools
import json
import select
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import docker
import pytest

from lab import Cluster, Result
from lab.engine import ownership
from lab.plan.cluster import MASTER_PORT, ClusterInfo
from lab.polling import poll_until

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
pytestmark = [pytest.mark.docker, pytest.mark.parametrize("engine", ["docker"], indirect=True), pytest.mark.half]
GROUPS = ("224.0.0.1", "224.0.0.251", "239.1.2.3")
GROUPS_6 = ("ff02::1", "ff02::fb", "ff05::2")
EVERYWHERE = ("255.255.255.255", *GROUPS, *GROUPS_6)
LISTENING = """
import os, select, socket, sys
ports, listeners = [int(word) for word in sys.argv[1:]], []
for port in ports:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                one = socket.socket(family, kind)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address, port))
                if kind == socket.SOCK_STREAM:
                    one.listen()
                listeners.append(one)
            except OSError:
                continue
with open("/tmp/heard", "w") as heard:
    print("ready", file=heard, flush=True)
    while os.path.exists("/tmp/heard"):
        for one in select.select(listeners, [], [], 0.2)[0]:
            if one.type == socket.SOCK_STREAM:
                print("tcp", one.accept()[1][0], file=heard, flush=True)
            else:
                print("udp", one.recvfrom(999), file=heard, flush=True)
"""
"""A server in a node, on all of these ports: it writes down whoever comes, and ends once that file is gone."""


class Listeners:
    """Sockets of this machine at one port: TCP and UDP, IPv4 and IPv6, in multicast groups on every device."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._sockets = [socket.create_server(("", 0))]
        self.port = self._sockets[0].getsockname()[1]
        self._sockets += [
            self._open(socket.AF_INET, socket.SOCK_DGRAM, ""),
            self._open(socket.AF_INET6, socket.SOCK_STREAM, "::"),
            self._open(socket.AF_INET6, socket.SOCK_DGRAM, "::"),
        ]
        self._sockets[2].listen()
        self._end, self._other = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _open(self, family: int, kind: int, address: str) -> socket.socket:
        opened = socket.socket(family, kind)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((address, self.port))
        return opened

    def join_groups(self) -> None:
        """Join the groups on all devices that this machine has by now."""
        _, four, _, six = self._sockets
        for index, _ in socket.if_nameindex():
            for group in GROUPS:
                joined = struct.pack("4s4si", socket.inet_aton(group), bytes(4), index)
                with suppress(OSError):
                    four.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            for group in GROUPS_6:
                joined = struct.pack("16si", socket.inet_pton(socket.AF_INET6, group), index)
                with suppress(OSError):
                    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)

    def start(self) -> None:
        """Listen."""
        self._thread.start()

    def _listen(self) -> None:
        while True:
            for one in select.select([*self._sockets, self._end], [], [])[0]:
                if one is self._end:
                    return
                if one.type == socket.SOCK_STREAM:
                    accepted, address = one.accept()
                    accepted.close()
                    self.heard.append(f"tcp from {address[0]}")
                else:
                    data, address = one.recvfrom(999)
                    self.heard.append(f"{data!r} from {address[0]}")

    def close(self) -> None:
        """Listen no more."""
        self._other.close()
        self._thread.join(10)
        for one in (*self._sockets, self._end):
            one.close()


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


def addresses_of_this_machine(cluster: Cluster) -> list[str]:
    """Of every device of this machine, the gateway of every network of the engine, and their broadcast addresses."""
    found: set[str] = set()
    for network in cluster.engine.connection.api.networks():  # type: ignore[attr-defined]
        for config in network["IPAM"]["Config"] or ():
            if ":" not in config["Subnet"]:
                found |= {config.get("Gateway", ""), _last_of(config["Subnet"])}
    with open("/proc/net/fib_trie") as file:
        lines = [line.split() for line in file]
    found |= {before[1] for before, line in itertools.pairwise(lines) if line[:3] == ["/32", "host", "LOCAL"]}
    with open("/proc/net/if_inet6") as file:
        sixes = {socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in file}
    return sorted(one for one in found | sixes if one and not one.startswith("127.") and one != "::1")


def _last_of(subnet: str) -> str:
    return str(ipaddress.ip_network(subnet).broadcast_address)


def info_of(cluster: Cluster) -> ClusterInfo:
    info = cluster.info()
    assert info is not None
    return info


def asked(cluster: Cluster, addresses: list[str], ports: list[int], names: tuple[str, ...] = ()) -> str:
    peers = [node.address for node in info_of(cluster).nodes[1:]]
    return json.dumps({"addresses": addresses, "ports": ports, "names": list(names), "peers": peers})


def test_nothing_that_a_strict_node_sends_reaches_this_machine(
    run: Run, make_cluster: MakeCluster, listeners: Listeners
) -> None:
    strict, usual = make_cluster(nodes=2, strict=True), make_cluster(nodes=2)
    listeners.join_groups()
    listeners.start()
    targets = [*EVERYWHERE, *addresses_of_this_machine(strict)]

    result = run("reaches.py", asked(strict, targets, [listeners.port]), on=strict)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].notes["connected"] == []
    assert listeners.heard == []
    assert "hostname" not in result.ranks[0].log + result.ranks[1].log, "what PyTorch asks for is known"

    result = run("reaches.py", asked(usual, [*EVERYWHERE], [listeners.port]), on=usual)

    assert result.passed, result.reason + result.ranks[0].log
    assert any("255.255.255.255" in each for each in listeners.heard), "the listeners do hear"
    assert any("224.0.0.1" in each for each in listeners.heard)


@pytest.fixture
def stranger_on_its_network(make_cluster: MakeCluster) -> Iterator[str]:
    """A container of somebody else that is connected to the network of the strict cluster; its name."""
    strict = make_cluster(nodes=2, strict=True)
    client, name = docker.from_env(), f"lab-test-{uuid.uuid4().hex[:8]}"
    image = client.containers.list(filters={"name": f"lab-{strict.name}-node0"})[0].image
    made = client.containers.run(
        image, ["3600"], entrypoint="sleep", name=name, network=f"lab-{strict.name}", detach=True, init=True
    )
    yield name
    made.remove(force=True)


def test_a_strict_node_resolves_the_names_of_its_own_nodes_and_no_others(
    run: Run, make_cluster: MakeCluster, stranger_on_its_network: str
) -> None:
    strict = make_cluster(nodes=2, strict=True)
    nodes = info_of(strict).nodes
    others = (
        stranger_on_its_network,
        f"{stranger_on_its_network}.lab-{strict.name}",
        f"lab-{strict.name}-node1",
        "example.com",
        "host.docker.internal",
        socket.gethostname(),
    )

    result = run("reaches.py", asked(strict, [], [], ("node0", "node1", *others)), on=strict)

    assert result.passed, result.reason + result.ranks[0].log
    notes = result.ranks[0].notes
    assert notes["names"] == {
        **{node.name: [node.address] for node in nodes},
        **dict.fromkeys(others),
    }
    assert notes["resolver"] == []
    assert notes["names_took_s"] < 5


def serve_in_nodes(cluster: Cluster, ports: list[int]) -> list[Any]:
    """Have every node of a cluster listen at these ports; the containers."""
    client = docker.from_env()
    containers = [client.containers.get(node.handle) for node in info_of(cluster).nodes]
    for container in containers:
        container.exec_run(["rm", "-f", "/tmp/heard"])
        container.exec_run(["python3", "-c", LISTENING, *map(str, ports)], detach=True)
        assert poll_until(lambda container=container: "ready" in heard_in(container), 30.0, 0.1)  # type: ignore[misc]
    return containers


def heard_in(container: Any) -> str:
    outputs = (container.exec_run(["cat", "/tmp/heard"]).output.decode() for _ in range(3))
    return str(next(filter(None, outputs), ""))  # an engine under load may lose the output of a short command


@pytest.mark.sample(1)  # one set of rules
@pytest.mark.parametrize(
    ("attacks", "attacked", "owner"),
    [
        (True, True, "somebody@else"),
        pytest.param(True, False, ownership.current_owner(), marks=pytest.mark.long),
        pytest.param(False, True, "somebody@else", marks=pytest.mark.long),
        (False, False, ownership.current_owner()),
    ],
)
def test_nodes_of_one_cluster_reach_no_port_of_another(
    run: Run, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, attacks: bool, attacked: bool, owner: str
) -> None:
    attacker = make_cluster(nodes=2, strict=attacks)
    other = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="docker", nodes=1, strict=attacked)
    ports = [22, 53, MASTER_PORT, 45001]
    with owned_by(owner, monkeypatch):
        other.up()
        (container,) = serve_in_nodes(other, ports)
        address = info_of(other).nodes[0].address
    try:
        itself = f"import socket; socket.create_connection(({address!r}, 45001), 5)"
        assert container.exec_run(["python3", "-c", itself]).exit_code == 0
        heard = f"ready\ntcp {address}\n"
        assert poll_until(lambda: heard_in(container) == heard, 10.0, 0.1), "the server does hear"

        result = run("reaches.py", asked(attacker, [address, *EVERYWHERE], ports), on=attacker)

        assert result.passed, result.reason + result.ranks[0].log
        assert heard_in(container) == heard, "who connects may have met a proxy elsewhere: who listens knows"
    finally:
        with owned_by(owner, monkeypatch):
            other.down()


@contextmanager
def owned_by(owner: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is made and found meanwhile belongs to somebody else."""
    with monkeypatch.context() as patched:
        patched.setattr(ownership, "current_owner", lambda: owner)
        yield


def test_nodes_of_a_strict_cluster_still_reach_one_another(run: Run, make_cluster: MakeCluster) -> None:
    strict = make_cluster(nodes=2, strict=True)
    containers = serve_in_nodes(strict, [45001])
    try:
        peer = info_of(strict).nodes[1].address
        result = run("reaches.py", asked(strict, [peer], [45001]), on=strict)

        assert result.passed, result.reason + result.ranks[0].log
        assert f"tcp plain to {peer}:45001" in result.ranks[0].notes["connected"]
        assert "udp plain" in heard_in(containers[1])
    finally:
        for container in containers:
            container.exec_run(["rm", "-f", "/tmp/heard"])
