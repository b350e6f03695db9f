"""What the kernel knows of a node's TCP connections: data that nobody acknowledged, round trip times, rates.

Asked over a netlink socket (`inet_diag`, which needs no privilege), it answers with `struct tcp_info` of every
connection (`linux/inet_diag.h`, `linux/tcp.h`). A look at a few connections takes 0.1 ms.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple

from .config import Config
from .messages import wire
from .messages.agent import BLINK_S, LONG_WAYS, Connections

_NETLINK, _SOCK_DIAG = 16, 4
_BY_FAMILY, _DUMP = 20, 0x301  # SOCK_DIAG_BY_FAMILY; NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_INFO = 2  # INET_DIAG_INFO
_OPEN = ~((1 << 6) | (1 << 7) | (1 << 10)) & 0xFFF  # neither TIME_WAIT nor CLOSE nor LISTEN
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48s")
_PORTS, _QUEUES, _ATTRIBUTE = struct.Struct("!HH"), struct.Struct("=IIII"), struct.Struct("=HH")
_ID, _QUEUES_AT, _ATTRIBUTES_AT = 4, 56, 72
_COUNTS, _LONGS, _SEGMENTS = struct.Struct("=B"), struct.Struct("=Q"), struct.Struct("=III")
_RETRANSMITS, _RTO, _UNACKED, _RTT, _AGAIN, _ACKED, _SEGS, _RATE, _BUSY = 2, 8, 24, 68, 100, 120, 136, 160, 168
"""Where in `struct tcp_info` the numbers stand."""
_WORD = struct.Struct("=I")
_RECEIVE_BYTES = 1 << 16
_WAIT_S = 0.5
_MOST_SOCKETS = 4096
_MOST_PEERS = 64

EVERY_S = 0.5
"""How often the kernel is asked."""
_AGAIN_S = 1.0
_MOST_BLINKS = 64
"""It is told about so often, at most, that nothing was acknowledged for a moment."""
_FIRST_S, _SELDOM_S = 1.0, 32.0
"""While all is well it is told after the first of these, then after twice as long, up to the second."""
_NO_SERVICE = 9
"""A port at which nobody listens: a kernel that can be reached refuses at once."""
_PATIENCE_S = 0.2
_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_MOST_REPORTS = 2000


class Connection(NamedTuple):
    """One connection, as the kernel tells it."""

    local: str
    peer: str
    ports: tuple[int, int]
    unread_bytes: int
    unacknowledged_bytes: int
    silent_s: float
    sent_again: int
    segments_out: int
    segments_in: int
    acknowledged_bytes: int
    round_trip_s: float
    rate_bytes_per_s: float
    busy_s: float
    reader_late_s: float


def connections() -> list[Connection]:
    """Every connection of this network namespace; none where the kernel does not say."""
    found: list[Connection] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, struct.error, ValueError):
            for message in _dump(family):
                told = _read(message)
                if told is not None:
                    found.append(told)
                if len(found) >= _MOST_SOCKETS:
                    return found
    return found


def _dump(family: int) -> Iterator[bytes]:
    with socket.socket(_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(_WAIT_S)
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _OPEN, b"")
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        while True:
            data = kernel.recv(_RECEIVE_BYTES)
            while len(data) >= _HEADER.size:
                length, kind, _, _, _ = _HEADER.unpack_from(data)
                if kind in (_ERROR, _DONE) or length < _HEADER.size:
                    return
                yield data[_HEADER.size : length]
                data = data[(length + 3) & ~3 :]


def _read(message: bytes) -> Connection | None:
    size = 4 if message[0] == socket.AF_INET else 16
    places = (_ID + 4, _ID + 20)
    local, peer = (_plain(message[place : place + size]) for place in places)
    unread, written, _, inode = _QUEUES.unpack_from(message, _QUEUES_AT)
    info = _attribute(message, _INFO)
    if len(info) < _SEGS + 12 or not inode:  # no process has it any more: it is what an earlier run left
        return None
    (unacked,), (rtt,) = _WORD.unpack_from(info, _UNACKED), _WORD.unpack_from(info, _RTT)
    segments_out, segments_in, unsent = _SEGMENTS.unpack_from(info, _SEGS)
    rate = _LONGS.unpack_from(info, _RATE)[0] if len(info) >= _RATE + 8 else 0
    busy, late = (_LONGS.unpack_from(info, place)[0] if len(info) >= place + 8 else 0 for place in (_BUSY, _BUSY + 8))
    return Connection(
        local=local,
        peer=peer,
        ports=_PORTS.unpack_from(message, _ID),
        unread_bytes=unread,
        unacknowledged_bytes=max(0, written - unsent) if unacked else 0,
        silent_s=_silence(info[_RETRANSMITS], _WORD.unpack_from(info, _RTO)[0] / 1e6) if unacked else 0.0,
        sent_again=_WORD.unpack_from(info, _AGAIN)[0],
        segments_out=segments_out,
        segments_in=segments_in,
        acknowledged_bytes=_LONGS.unpack_from(info, _ACKED)[0],
        round_trip_s=rtt / 1e6,
        rate_bytes_per_s=float(rate),
        busy_s=busy / 1e6,
        reader_late_s=late / 1e6,
    )


def _silence(retransmits: int, timer_s: float) -> float:
    """How long nothing was acknowledged at least: the timer doubles each time that it runs out.

    It does not run out where the node's own kernel drops what is sent.
    """
    return timer_s * (1 - 0.5**retransmits) if retransmits else 0.0


def _attribute(message: bytes, wanted: int) -> bytes:
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += max(4, (length + 3) & ~3)
    return b""


def _plain(packed: bytes) -> str:
    """An address; an IPv4 one that stands in an IPv6 one, as itself."""
    address = ip_address(packed)
    mapped: IPv4Address | None = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def by_peer(found: Iterable[Connection], now: float, node: str, run: str) -> dict[str, Connections]:
    """Connections to the same address taken together; those of a node with itself are left out."""
    peers: dict[str, list[Connection]] = {}
    for one in found:
        if one.peer != one.local and not ip_address(one.peer).is_loopback:
            peers.setdefault(one.peer, []).append(one)
    most = {peer: max(ours, key=lambda one: one.acknowledged_bytes) for peer, ours in peers.items()}
    return {
        peer: Connections(
            time=now,
            node=node,
            run=run,
            peer=peer,
            number=len(ours),
            unacknowledged_bytes=sum(one.unacknowledged_bytes for one in ours),
            silent_s=round(max(one.silent_s for one in ours), 3),
            unread_bytes=sum(one.unread_bytes for one in ours),
            sent_again=sum(one.sent_again for one in ours),
            segments_out=sum(one.segments_out for one in ours),
            segments_in=sum(one.segments_in for one in ours),
            acknowledged_bytes=sum(one.acknowledged_bytes for one in ours),
            round_trip_s=most[peer].round_trip_s,
            rate_bytes_per_s=max(one.rate_bytes_per_s for one in ours),
            most_bytes=most[peer].acknowledged_bytes,
            busy_s=most[peer].busy_s,
            reader_late_s=most[peer].reader_late_s,
        )
        for peer, ours in sorted(peers.items(), key=lambda item: -max(one.silent_s for one in item[1]))[:_MOST_PEERS]
    }


class Reports:
    """Tells of a node's connections: seldom while all is well, at once where nobody acknowledges what is sent.

    Args:
        run: name of the run.
        config: of the node; where its network is not its own, nothing is told: the addresses there tell no node.
        emit: sends a message to the lab.
    """

    def __init__(self, run: str, config: Config, emit: Callable[[wire.Message], None]) -> None:
        self._run = run
        self._node = config.node
        self._own = config.container
        self._emit = emit
        self._began = self._looked = self._told = time.monotonic()
        self._next_s = _FIRST_S
        self._peers: set[str] = set()
        """Addresses of all to whom there were connections."""
        self._asked: dict[str, tuple[socket.socket, float]] = {}
        """Attempts to reach them, and the monotonic times at which they began."""
        self._answers: dict[str, bool] = {}
        self._unchanged: dict[tuple[object, ...], float] = {}
        """By connection and what it has got acknowledged, while there is more to acknowledge: since when it is so."""
        self._round_trips: dict[str, float] = {}
        """Seconds, as they were last."""
        self._stuck: set[str] = set()
        """Who did not acknowledge what was sent."""
        self._blinking: set[str] = set()
        """Who did not for a moment at least."""
        self._news = False
        """Whether that, or who answers, is otherwise than it was told last."""
        self._reports = 0

    def look(self, *, ended: bool = False) -> None:
        """Ask the kernel, if it is time for it, and tell what is worth it; `ended`: a worker has just failed."""
        now = time.monotonic()
        if not self._own or (now - self._looked < EVERY_S and not ended):
            return
        self._looked = now
        found = self._found()
        stuck = {peer for peer, one in found.items() if one.stuck}
        self._news |= stuck != self._stuck
        self._stuck = stuck
        blinking = {peer for peer, one in found.items() if one.silent_s >= max(BLINK_S, LONG_WAYS * one.round_trip_s)}
        lately = now - self._told < max(_AGAIN_S, (now - self._began) / _MOST_BLINKS)
        self._news |= bool(blinking - self._blinking) and not lately
        self._blinking = blinking
        if stuck:
            self.ask()
        else:
            self.close()
            self._answers.clear()
        due = now - self._began >= self._next_s
        if due:
            self._next_s += min(self._next_s, _SELDOM_S)
        if ended or due or self._news or (stuck and now - self._told >= _AGAIN_S):
            self._tell(found, now)

    def ask(self) -> None:
        """See who has answered, and ask all others again: a kernel that can be reached refuses a connection at once."""
        now = time.monotonic()
        for peer, (asked, since) in list(self._asked.items()):
            answered = asked.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED or _connected(asked)
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

    def tell(self) -> None:
        """Tell how it is now."""
        if self._own:
            self.ask()
            self._tell(self._found(), time.monotonic())

    def close(self) -> None:
        """Let go of what was asked."""
        for asked, _ in self._asked.values():
            asked.close()
        self._asked.clear()

    def _found(self) -> dict[str, Connections]:
        now, open_now = time.monotonic(), [one for one in connections() if one.ports[1] != _NO_SERVICE]
        keys = [(one.local, one.peer, one.ports, one.acknowledged_bytes) for one in open_now]
        waiting = [key for key, one in zip(keys, open_now) if one.unacknowledged_bytes]
        self._unchanged = {key: self._unchanged.get(key, now) for key in waiting}
        silent = (max(one.silent_s, now - self._unchanged.get(key, now)) for key, one in zip(keys, open_now))
        told = [one._replace(silent_s=silent_s) for one, silent_s in zip(open_now, silent)]
        found = by_peer(told, time.time(), self._node, self._run)
        self._round_trips.update((peer, one.round_trip_s) for peer, one in found.items())
        self._peers.update(list(found)[: _MOST_PEERS - len(self._peers)])
        return found

    def _tell(self, found: dict[str, Connections], now: float) -> None:
        self._told, self._news = now, False
        for peer in [*found, *(peer for peer in self._answers if peer not in found)]:
            self._reports += 1
            if self._reports <= _MOST_REPORTS:
                one = found.get(peer) or Connections(time.time(), self._node, self._run, peer)
                self._emit(one._replace(answers=self._answers.get(peer)))


def _connected(asked: socket.socket) -> bool:
    try:
        asked.getpeername()
    except OSError:
        return False
    return True
