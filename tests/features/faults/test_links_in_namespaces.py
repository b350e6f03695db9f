"""What the kernel does to packets of two network namespaces, by the very modules that agents make links with.

Runs as root on any Linux; what needs netem runs where the kernel has it, and else under a stock kernel
(`test_links_under_a_stock_kernel.py`).
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from lab.features.faults.on_node import links
from lab.features.faults.on_node.shaping import NAMES, Shaped, Shaping
from lab.node.netlink import find_device
from tests.golden import golden
from tests.rates import reaches

A, B = "10.77.0.2", "10.77.0.3"
CONTEXT: Any = None
DEADLINE_S = 30.0
PORT = 7000
QUIET_S = 1.0
"""Nothing has arrived for so long: nothing does any more."""
_CLONE_NEWNET = 0x40000000
_RECEIVE_BUFFER_FORCED = 33
T = TypeVar("T")


def knows_netem() -> bool:
    try:
        return Shaping(1).supports("netem")
    except OSError:
        return False


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["which", "ip"], capture_output=True, check=False).returncode != 0,
    reason="needs kernel namespaces: run it as root, where there is iproute2",
)
NEEDING_NETEM: list[str] = []
"""Names of the tests that do."""


def late(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs netem."""
    NEEDING_NETEM.append(test.__name__)
    return pytest.mark.skipif(os.geteuid() == 0 and not knows_netem(), reason="needs kernel with netem")(test)


class Namespace:
    """One end of the link: a thread that lives in a network namespace, and its own state of the module."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.parts: dict[str, Any] = {}
        self.thread = ThreadPoolExecutor(1, initializer=self._enter)
        self.device = f"v{name}"

    def _enter(self) -> None:
        with open(f"/run/netns/{self.name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def do(self, function: Callable[[], T]) -> T:
        return self.thread.submit(function).result(DEADLINE_S)

    def deed(self, function: Callable[[Any, dict[str, Any]], Any], **said: Any) -> Any:
        def done() -> Any:
            links._parts = self.parts
            return function(CONTEXT, {"part": "test", "address": self.address, **said})

        return self.do(done)

    def socket(self, kind: socket.SocketKind, *, bound: bool = False) -> socket.socket:
        made = self.do(lambda: socket.socket(socket.AF_INET, kind))
        made.settimeout(DEADLINE_S)
        if bound:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCED, 1 << 24)  # all that tests send
            made.bind((self.address, PORT))
        return made


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Namespace, Namespace]]:
    tag = os.urandom(2).hex()
    names = [f"lab{tag}{end}" for end in "ab"]
    monkeypatch.setattr(links, "_parts", {})
    for name in names:
        ip("netns", "add", name)
    try:
        first, second = names
        ip("link", "add", f"v{first}", "netns", first, "type", "veth", "peer", "name", f"v{second}", "netns", second)
        for name, address in zip(names, (A, B), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"v{name}")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", f"v{name}", "up")
        ends = Namespace(first, A), Namespace(second, B)
        yield ends
        for end in ends:
            end.thread.shutdown()
    finally:
        for name in names:
            ip("netns", "del", name)


def sent_across(
    pair: tuple[Namespace, Namespace], count: int, *, size: int = 200, pause_s: float = 0.0
) -> list[tuple[int, float, float]]:
    """Number, time of sending and time of arrival of each datagram that arrived, in order; the last one is repeated."""
    a, b = pair
    sender, receiver = a.socket(socket.SOCK_DGRAM), b.socket(socket.SOCK_DGRAM, bound=True)
    arrived: list[tuple[int, float, float]] = []
    over = threading.Event()

    def listen() -> None:
        receiver.settimeout(0.05)
        while True:
            try:
                data = receiver.recv(2048)
            except TimeoutError:
                if over.is_set():
                    return
                continue
            number, at = data.split(b" ")[:2]
            arrived.append((int(number), float(at), time.monotonic()))

    listening = threading.Thread(target=listen)
    listening.start()
    for number in range(count):
        sender.sendto(f"{number} {time.monotonic():.6f} ".encode().ljust(size, b"x"), (B, PORT))
        if pause_s or number % 50 == 49:
            time.sleep(pause_s or 0.002)  # else what receives is not fast enough
    wait_until_quiet(arrived, count)
    over.set()
    listening.join(DEADLINE_S)
    sender.close()
    receiver.close()
    return arrived


def wait_until_quiet(arrived: list[Any], count: int) -> None:
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < (QUIET_S if len(arrived) != count else QUIET_S / 4):
        if len(arrived) != seen:
            seen, since = len(arrived), time.monotonic()
        time.sleep(0.02)


def rate_of_tcp(pair: tuple[Namespace, Namespace], size: int) -> float:
    """Bits a second of what a program sends."""
    a, b = pair
    listener = b.socket(socket.SOCK_STREAM, bound=True)
    listener.listen(1)
    sender = a.socket(socket.SOCK_STREAM)
    sender.connect((B, PORT))
    taker, _ = listener.accept()
    pushing = threading.Thread(target=lambda: sender.sendall(b"x" * size))
    pushing.start()
    got, began = 0, time.monotonic()
    while got < size:
        got += len(taker.recv(1 << 16))
    ended = time.monotonic()
    pushing.join(DEADLINE_S)
    for one in (sender, taker, listener):
        one.close()
    return got * 8 / (ended - began)


def least_round_trip_s(end: Namespace) -> float:
    """Of several: a machine with other things to do makes them longer, never shorter."""
    return min(end.deed(links.inspect_link_probe, peer=B)["round_trip_s"] for _ in range(8))


def left_for(end: Namespace, peer: str) -> Shaped:
    return end.do(lambda: Shaping(find_device(end.address)).read_counters(peer))


def near_share(count: int, of: int, share: float) -> bool:
    """Within five standard deviations of what chance gives."""
    spread: float = (of * share * (1 - share)) ** 0.5
    return abs(count - of * share) <= 5 * spread


def test_a_rate_is_kept_and_measured(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 4e7}})

    assert reaches(lambda: rate_of_tcp(pair, 4_000_000), 4e7)
    assert reaches(lambda: a.deed(links.inspect_link_probe, peer=B).get("bits_per_s", 0.0), 4e7)
    assert left_for(a, B).bytes > 2_000_000


def test_what_leaves_for_all_peers_has_one_cable(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {}, "10.77.0.4": {}}, rate_bits_per_s=4e7)

    assert reaches(lambda: rate_of_tcp(pair, 4_000_000), 4e7)


def test_a_rate_is_changed_in_place_and_gone_after_the_last_undo(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 1e6}})
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 4e7}, "10.77.0.4": {"rate_bits_per_s": 1e6}})
    assert reaches(lambda: rate_of_tcp(pair, 4_000_000), 4e7)
    a.deed(links.apply_links, part="other", to={B: {"rate_bits_per_s": 5e7}})

    a.deed(links.undo_links)
    assert a.deed(links.inspect_links)["parts"] == ["other"]
    assert reaches(lambda: rate_of_tcp(pair, 5_000_000), 5e7)
    a.deed(links.undo_links, part="other")

    found = a.deed(links.inspect_links)
    assert (found["parts"], found["shaped"], found["filtered"]) == ([], False, False)
    assert max(rate_of_tcp(pair, 20_000_000) for _ in range(3)) > 1e8


def test_loss_is_as_asked_and_counted(pair: tuple[Namespace, Namespace]) -> None:
    _, b = pair
    b.deed(links.apply_links, **{"from": {A: {"loss": 0.2}}})

    arrived = sent_across(pair, 4000)

    assert near_share(len(arrived), 4000, 0.8)
    met = b.deed(links.inspect_links)["met"]
    assert met[f"loss {A}"] == 4000 - len(arrived)
    assert met[f"from {A}"] >= 4000
    b.deed(links.undo_links)
    assert len(sent_across(pair, 1000)) == 1000


def test_packets_are_sent_twice(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"duplicate": 0.3}})

    arrived = sent_across(pair, 2000)

    assert near_share(len(arrived) - 2000, 2000, 0.3)
    a.deed(links.undo_links)
    assert len(sent_across(pair, 500)) == 500


def test_dropped_packets_do_not_arrive_and_are_counted(pair: tuple[Namespace, Namespace]) -> None:
    _, b = pair
    b.deed(links.apply_links, **{"from": {A: {"drop": 1}}})

    assert sent_across(pair, 100) == []
    assert b.deed(links.inspect_links)["met"][f"drop {A}"] >= 100
    b.deed(links.undo_links)
    assert len(sent_across(pair, 100)) == 100


def test_no_packet_passes_a_cable_that_is_out(pair: tuple[Namespace, Namespace]) -> None:
    _, b = pair
    b.deed(links.apply_links, **{"from": {A: {"loss": 0.000_001}}})
    b.deed(links.apply_cable)
    b.deed(links.apply_cable)
    assert b.deed(links.inspect_cable) == {"in_force": True}
    assert sent_across(pair, 100) == []

    b.deed(links.undo_cable)
    assert b.deed(links.inspect_cable) == {"in_force": False}
    assert len(sent_across(pair, 100)) == 100
    assert b.deed(links.inspect_links)["filtered"]
    b.deed(links.undo_links)


def test_connections_are_reset_for_both_ends(pair: tuple[Namespace, Namespace]) -> None:
    a, b = pair
    listener, sender = b.socket(socket.SOCK_STREAM, bound=True), a.socket(socket.SOCK_STREAM)
    listener.listen(1)
    sender.connect((B, PORT))
    taker, _ = listener.accept()
    assert a.deed(links.apply_links, **{"from": {B: {"reset": 1}}})["were_reset"] == 1
    b.deed(links.apply_links, **{"from": {A: {"reset": 1}}})

    with pytest.raises(ConnectionAbortedError):  # neither has sent anything
        sender.recv(1)
    with pytest.raises(ConnectionResetError):
        taker.recv(1)
    again = a.socket(socket.SOCK_STREAM)
    with pytest.raises(ConnectionRefusedError):
        again.connect((B, PORT))
    a.deed(links.undo_links)
    b.deed(links.undo_links)
    healed = a.socket(socket.SOCK_STREAM)
    healed.connect((B, PORT))
    for one in (listener, sender, taker, again, healed):
        one.close()


def test_names_are_refused_at_once(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, no_names=True)
    asking = a.socket(socket.SOCK_DGRAM)
    asking.connect(("127.0.0.1", 53))

    with pytest.raises(PermissionError):
        asking.send(b"who is node0")

    assert a.deed(links.inspect_links)["met"][NAMES] == 1
    asking.close()


def test_what_the_kernel_refuses_leaves_all_as_it_was(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 1e6}})
    before = a.deed(links.inspect_links)

    with pytest.raises(ValueError, match=golden(1)):
        a.deed(links.apply_links, part="other", address="10.77.0.99", no_names=True)

    assert a.deed(links.inspect_links) == before


def test_without_its_device_a_node_forgets_all_the_same(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 1e6}}, **{"from": {B: {"drop": 1}}})
    ip("-n", a.name, "link", "del", a.device)

    a.deed(links.undo_links)

    assert a.deed(links.inspect_links)["parts"] == []
    assert not a.deed(links.inspect_links)["filtered"]


@pytest.mark.skipif(knows_netem(), reason="needs kernel without netem")
def test_without_netem_a_delay_is_refused_in_a_sentence(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    with pytest.raises(ValueError, match=golden(1)):
        a.deed(links.apply_links, to={B: {"delay_s": 0.1}})
    assert not a.deed(links.inspect_links)["shaped"]


@late
def test_packets_are_late_by_what_is_asked(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"delay_s": 0.2}})

    late_by = sorted(arrival - sent for _, sent, arrival in sent_across(pair, 20, pause_s=0.01))

    assert len(late_by) == 20
    assert late_by[0] == pytest.approx(0.2, rel=0.1)
    assert least_round_trip_s(a) == pytest.approx(0.2, rel=0.1)
    a.deed(links.undo_links)
    assert max(arrival - sent for _, sent, arrival in sent_across(pair, 5)) < 0.1


@late
def test_jitter_spreads_the_delay(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"delay_s": 0.3, "jitter_s": 0.15}})

    late_by = [arrival - sent for _, sent, arrival in sent_across(pair, 100, pause_s=0.005)]

    assert min(late_by) >= 0.15
    assert max(late_by) - min(late_by) > 0.2
    assert sorted(late_by)[50] == pytest.approx(0.3, rel=0.25)


@late
def test_flipped_bits_are_found_by_checksums(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"corrupt": 0.3}})

    assert near_share(len(sent_across(pair, 1000, size=1200)), 1000, 0.7)


@late
def test_some_packets_overtake_others(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    a.deed(links.apply_links, to={B: {"reorder": 0.25, "delay_s": 0.2}})

    numbers = [number for number, _, _ in sent_across(pair, 200, pause_s=0.005)]

    assert sorted(numbers) == list(range(200))
    early = sum(any(later < number for later in numbers[place + 1 :]) for place, number in enumerate(numbers))
    assert near_share(early, 200, 0.25)


@late
def test_delay_and_rate_of_several_peers_hold_together(pair: tuple[Namespace, Namespace]) -> None:
    a, _ = pair
    how = {"rate_bits_per_s": 1e7, "delay_s": 0.05, "duplicate": 0.1, "reorder": 0.1}
    a.deed(links.apply_links, to={B: how, "10.77.0.4": how})
    a.deed(links.apply_links, part="more", to={B: {"delay_s": 0.05}})
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 1e7, "delay_s": 0.05}})

    assert least_round_trip_s(a) == pytest.approx(0.1, rel=0.15)
    assert a.deed(links.inspect_link_probe, peer=B).get("bits_per_s", 1e7) == pytest.approx(1e7, rel=0.1)
    assert left_for(a, B).waiting < 2 * 0.1 * 1e7 / 8 / 1400  # nobody waits long behind what measured
    assert rate_of_tcp(pair, 2_000_000) < 1.1e7
    a.deed(links.undo_links)
    a.deed(links.undo_links, part="more")
    assert not a.deed(links.inspect_links)["shaped"]


SUMS = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("connected", flush=True)
sys.stdin.readline()
for size in (256, 32768):
    tensor, took = torch.ones(size), []
    for _ in range(3):
        dist.barrier()
        began = time.monotonic()
        dist.all_reduce(tensor)
        took.append(time.monotonic() - began)
    print(min(took), flush=True)
os._exit(0)  # the other end may be gone
"""


@late
@pytest.mark.timeout(1500)  # importing torch takes minutes in an emulated machine that has company
def test_an_all_reduce_of_two_takes_four_ways_whatever_its_size(pair: tuple[Namespace, Namespace]) -> None:
    """As `scenarios/network/delay_10ms.yaml` says."""
    way_s = 0.5
    ranks = []
    try:
        for rank, end in enumerate(pair):
            told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": A, "MASTER_PORT": str(PORT)}
            words = ["ip", "netns", "exec", end.name, sys.executable, "-c", SUMS]
            env = {**os.environ, **told, "GLOO_SOCKET_IFNAME": end.device}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            ranks.append(subprocess.Popen(words, env=env, text=True, bufsize=1, **pipes))  # type: ignore[call-overload]
        assert [rank.stdout.readline() for rank in ranks] == ["connected\n"] * 2
        for end, peer in zip(pair, (B, A), strict=True):
            end.deed(links.apply_links, to={peer: {"delay_s": way_s}})
        for rank in ranks:
            rank.stdin.write("\n")
        told_of = [rank.stdout.read().split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(DEADLINE_S)

    assert [len(told) for told in told_of] == [2, 2]
    for size in zip(*told_of, strict=True):
        assert max(map(float, size)) == pytest.approx(4 * way_s, rel=0.2)


def test_a_link_that_is_faster_than_this_machine_is_left_unmeasured_in_time(
    pair: tuple[Namespace, Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    monkeypatch.setattr(links, "_FASTEST", 1e15)
    a.deed(links.apply_links, to={B: {"rate_bits_per_s": 300e9}})

    assert a.deed(links.inspect_link_probe, peer=B) == {}
