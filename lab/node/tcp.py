"""A node's TCP connections, as the kernel reports them: unacknowledged data, round trip times, and ports in use."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, ip_address
from itertools import islice
from typing import Any, NamedTuple

from . import netlink
from .messages.agent import BLINK_S, LONG_WAYS, Config, Connections
from .processes import read_words

_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_INFO = 2  # INET_DIAG_INFO
_OPEN = ~((1 << 6) | (1 << 7) | (1 << 10)) & 0xFFF  # neither TIME_WAIT nor CLOSE nor LISTEN
_REQUEST = struct.Struct("=BBBBI48s")
_PORTS, _QUEUES = struct.Struct("!HH"), struct.Struct("=IIII")
_ID, _QUEUES_AT, _ATTRIBUTES_AT = 4, 56, 72
_RETRANSMITS, _RTO, _UNACKED, _UNSENT = 2, 8, 24, 144
_INFO_BYTES = 184
"""Size of `struct tcp_info` from Linux 4.10 on, as far as it is read."""
_NUMBERS = {
    "sent_again": ("=I", 100), "segments_out": ("=I", 136), "segments_in": ("=I", 140),
    "acknowledged_bytes": ("=Q", 120), "most_bytes": ("=Q", 120),
    "round_trip_s": ("=I", 68), "busy_s": ("=Q", 168), "reader_late_s": ("=Q", 176),
}  # fmt: skip
"""Format and offset in `struct tcp_info`, by number of a connection."""
_OF_MOST = ("round_trip_s", "busy_s", "reader_late_s")
"""Numbers in microseconds; of several connections, that of the busiest counts."""
_ADDED = ("unacknowledged_bytes", "sent_again", "segments_out", "segments_in", "acknowledged_bytes")
"""Numbers that are added over several connections."""
_MOST_SOCKETS = 4096
_MOST_PEERS = 64

EVERY_S = 0.5
"""Interval between queries of the kernel."""
_AGAIN_S = 1.0
_MOST_BLINKS = 64
"""Limit for the reports that nothing was acknowledged for a moment."""
_FIRST_S, _SELDOM_S = 1.0, 32.0
"""Delay of the first report without trouble; each further delay is twice as long, up to the second value."""
_NO_SERVICE = 9
"""A port at which nothing listens: a reachable kernel refuses at once."""
_PATIENCE_S = 0.2
_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_MOST_REPORTS = 2000


class Connection(NamedTuple):
    """One connection, as the kernel reports it."""

    local: str
    ports: tuple[int, int]
    facts: Connections
    """Numbers of this connection alone."""


def list_connections() -> list[Connection]:
    """Return every connection of this network namespace; none if the kernel does not report them."""
    connections: list[Connection] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        asked = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _OPEN, b"")
        with suppress(OSError, struct.error, ValueError):
            question = netlink.encode_request(_BY_FAMILY, netlink.DUMP, asked)
            answers = netlink.exchange_requests(netlink.SOCK_DIAG, [question])
            connections += filter(None, map(_read, islice(answers, _MOST_SOCKETS - len(connections))))
    return connections


def _read(message: bytes) -> Connection | None:
    size = 4 if message[0] == socket.AF_INET else 16
    local, peer = (_plain(message[at : at + size]) for at in (_ID + 4, _ID + 20))
    _, written, _, inode = _QUEUES.unpack_from(message, _QUEUES_AT)
    info = dict(netlink.read_attributes(message[_ATTRIBUTES_AT:])).get(_INFO, b"")
    if len(info) < _INFO_BYTES or not inode:  # no process has it any more: it is from an earlier run
        return None
    numbers = {name: struct.unpack_from(form, info, at)[0] for name, (form, at) in _NUMBERS.items()}
    numbers.update((name, numbers[name] / 1e6) for name in _OF_MOST)
    timer_us, unacknowledged, unsent = (struct.unpack_from("=I", info, at)[0] for at in (_RTO, _UNACKED, _UNSENT))
    if unacknowledged:
        numbers["unacknowledged_bytes"] = max(0, written - unsent)
        numbers["silent_s"] = _silence(info[_RETRANSMITS], timer_us / 1e6)
    return Connection(local, _PORTS.unpack_from(message, _ID), Connections(0.0, peer=peer, number=1, **numbers))


def _silence(retransmits: int, timer_s: float) -> float:
    """Return the minimum time without acknowledgements: the timer doubles each time that it expires.

    The timer does not expire where the node's own kernel drops what is sent.
    """
    return timer_s * (1 - 0.5**retransmits) if retransmits else 0.0


def _plain(packed: bytes) -> str:
    """Return an address as text; an IPv4-mapped IPv6 address as IPv4."""
    address = ip_address(packed)
    mapped: IPv4Address | None = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def by_peer(connections: Iterable[Connection]) -> dict[str, Connections]:
    """Combine connections to the same address; leave out those of a node with itself."""
    peers: dict[str, list[Connections]] = {}
    for local, _, one in connections:
        if one.peer != local and not ip_address(one.peer).is_loopback:
            peers.setdefault(one.peer, []).append(one)
    together = {peer: _together(ours) for peer, ours in peers.items()}
    return dict(sorted(together.items(), key=lambda item: -item[1].silent_s)[:_MOST_PEERS])


def _together(ours: list[Connections]) -> Connections:
    most = max(ours, key=lambda one: one.acknowledged_bytes)
    numbers: dict[str, Any] = {name: sum(getattr(one, name) for one in ours) for name in _ADDED}
    return most._replace(number=len(ours), silent_s=round(max(one.silent_s for one in ours), 3), **numbers)


class Reports:
    """Reports a node's connections: seldom without trouble, and at once if data is not acknowledged.

    Args:
        config: of the node; without a network of its own nothing is reported, because addresses do not identify nodes.
        emit: sends a message to the lab.
    """

    def __init__(self, config: Config, emit: Callable[[Connections], object]) -> None:
        self._own = config.container
        self._emit = emit
        self._began = self._polled_at = self._reported_at = time.monotonic()
        self._next_s = _FIRST_S
        self._peers: set[str] = set()
        """Addresses of all peers so far."""
        self._asked: dict[str, tuple[socket.socket, float]] = {}
        """Connection attempts to them, and the monotonic times at which they began."""
        self._answers: dict[str, bool] = {}
        self._unchanged: dict[tuple[str, str, tuple[int, int], int], float] = {}
        """By connection and acknowledged bytes, while more waits for acknowledgement: since when they are unchanged."""
        self._round_trips: dict[str, float] = {}
        """Latest values in seconds."""
        self._stuck: set[str] = set()
        """Peers that did not acknowledge data."""
        self._blinking: set[str] = set()
        """Peers that did not for a moment at least."""
        self._news = False
        """Whether that, or who answers, has changed since the last report."""
        self._reports = 0

    def poll(self, *, ended: bool = False) -> None:
        """Query the kernel if it is time, and report what is due; `ended`: a worker has just failed."""
        now = time.monotonic()
        if not self._own or (now - self._polled_at < EVERY_S and not ended):
            return
        self._polled_at = now
        peers = self._by_peer()
        stuck = {peer for peer, one in peers.items() if one.stuck}
        self._news |= stuck != self._stuck
        self._stuck = stuck
        blinking = {peer for peer, one in peers.items() if one.silent_s >= max(BLINK_S, LONG_WAYS * one.round_trip_s)}
        lately = now - self._reported_at < max(_AGAIN_S, (now - self._began) / _MOST_BLINKS)
        self._news |= bool(blinking - self._blinking) and not lately
        self._blinking = blinking
        if stuck:
            self.ask()
        else:
            self.close()
            self._answers.clear()
        if due := now - self._began >= self._next_s:
            self._next_s += min(self._next_s, _SELDOM_S)
        if ended or due or self._news or (stuck and now - self._reported_at >= _AGAIN_S):
            self._send(peers, now)

    def ask(self) -> None:
        """Record who has answered, and ask all others again: a reachable kernel refuses a connection at once."""
        now = time.monotonic()
        for peer, (asked, since) in list(self._asked.items()):
            answered = _answered(asked)
            patience_s = max(_PATIENCE_S, LONG_WAYS * self._round_trips.get(peer, 0.0))
            if answered or now - since >= patience_s:
                self._news |= self._answers.get(peer) != answered
                self._answers[peer] = answered
                self._asked.pop(peer)[0].close()
        for peer in self._peers - self._asked.keys():
            with suppress(OSError):
                asked = socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, _STREAM)
                self._asked[peer] = asked, now
                asked.connect_ex((peer, _NO_SERVICE))

    def report(self) -> None:
        """Report the current state."""
        if self._own:
            self.ask()
            self._send(self._by_peer(), time.monotonic())

    def close(self) -> None:
        """Close all connection attempts."""
        for asked, _ in self._asked.values():
            asked.close()
        self._asked.clear()

    def _by_peer(self) -> dict[str, Connections]:
        now, connections, unchanged = time.monotonic(), [], {}
        for local, ports, one in list_connections():
            if ports[1] == _NO_SERVICE:
                continue
            key = local, one.peer, ports, one.acknowledged_bytes
            if one.unacknowledged_bytes:
                unchanged[key] = self._unchanged.get(key, now)
            silent_s = max(one.silent_s, now - unchanged.get(key, now))
            connections.append(Connection(local, ports, one._replace(silent_s=silent_s)))
        self._unchanged = unchanged
        peers = by_peer(connections)
        self._round_trips.update((peer, one.round_trip_s) for peer, one in peers.items())
        self._peers.update(list(peers)[: _MOST_PEERS - len(self._peers)])
        return peers

    def _send(self, peers: dict[str, Connections], now: float) -> None:
        self._reported_at, self._news = now, False
        for peer in {**peers, **self._answers}:
            self._reports += 1
            if self._reports <= _MOST_REPORTS:
                one = peers.get(peer) or Connections(0.0, peer=peer)
                self._emit(one._replace(time=time.time(), answers=self._answers.get(peer)))


def _answered(asked: socket.socket) -> bool:
    """Return whether a kernel accepted or refused a connection."""
    with suppress(OSError):
        asked.getpeername()
        return True
    return asked.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


_PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_COUNTS = ("/proc/net/sockstat", "/proc/net/sockstat6")
"""Numbers of sockets by protocol: the kernel keeps them, so reading them is cheap."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_COUNTED = ("inuse", "tw")
_KEPT_BY_KERNEL = frozenset(("04", "05", "06", "09", "0B"))
"""FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING: states of connections that may have no process any more."""
_STRICT_SHARE, _SHARE = 0.1, 0.25
"""Limits for the used part of the kernel's port range: runs of gloo with dozens of ranks a node leave hundreds of
ports."""
_USUAL_RANGE = range(32768, 61000)


def describe_kept_ports(reusable: Collection[int], *, strict: bool) -> str:
    """Describe the used ports that keep this node from another run; empty if enough are free.

    Args:
        reusable: used ports that the next run can reuse.
        strict: whether a stranger's script may have chosen the ports. Then every port outside of the kernel's range
            must be free: the next script may need that very port.
    """
    ports, kept = _read_port_range(), _count_sockets()
    if kept > (_STRICT_SHARE if strict else _SHARE) * len(ports):
        return f"{kept:,} connections, which keep their ports for a minute (TIME_WAIT); there are {len(ports):,} ports"
    if not strict or not kept:
        return ""
    chosen = sorted({port for port in _read_kept_ports() if port not in ports and port not in reusable})
    return f"connections that keep port {', '.join(map(str, chosen[:3]))} for a minute (TIME_WAIT)" if chosen else ""


def _read_port_range() -> range:
    """Return the kernel's range of ephemeral ports."""
    for first, last in read_words(_PORT_RANGE):
        return range(int(first), int(last) + 1)
    return _USUAL_RANGE


def _count_sockets() -> int:
    """Return the number of sockets of this network namespace that have a port, those in TIME_WAIT included."""
    protocols = (words for words in read_words(*_COUNTS) if words[0].startswith(("TCP", "UDP")))
    named = (pair for _, *words in protocols for pair in zip(words[::2], words[1::2]))
    return sum(int(number) for name, number in named if name in _COUNTED)


def _read_kept_ports() -> Iterator[int]:
    """Yield the local port of every connection that may have no process."""
    for words in read_words(*_TABLES):
        if words[3] in _KEPT_BY_KERNEL:
            yield int(words[1].rpartition(":")[2], 16)
