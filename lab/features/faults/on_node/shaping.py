"""Rate, delay, and filters of the packets of a node.

Rate and delay are an htb class for each peer, and netem if requested. All queues are below one root queue of the
device, so removing the root undoes everything. Packets to other addresses than peers bypass them. Changes are in place,
so queued packets stay queued. Numbers and structures are those of <linux/rtnetlink.h> and <linux/pkt_sched.h>.

Filters drop, refuse, or duplicate packets, and reset connections:

- One nf_tables table of the lab has a counter for each rule. The receiver drops packets, not the sender, because a
  sender would notice that its own kernel drops a packet. Each change replaces the whole table in one transaction, so no
  packet meets a part of it.
- Open TCP connections to a peer are reset, because a process that only waits would not notice the fault otherwise.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ....node import netlink
from ....node.netlink import EXCLUSIVE, ROUTE, encode_attribute, encode_nested, encode_request, send_requests
from ...strict.on_node import nf_tables as nf
from . import LATE

_NEW_QUEUE, _DELETE_QUEUE, _QUEUES, _NEW_CLASS, _DELETE_CLASS, _CLASSES = 36, 37, 38, 40, 41, 42
_NEW_FILTER, _DELETE_FILTER = 44, 45
_HEAD = struct.Struct("=BxHiIII")
"""`struct tcmsg`: family, unused, device, handle, parent, info."""
_KIND, _OPTIONS, _STATS = 1, 2, 7
_ROOT = 0xFFFFFFFF
_HTB = 0x1A0 << 16
"""Handle of the root; other programs are unlikely to use it."""
_CABLE = 0xFFFF
"""Minor number of the class of all peers; the class of each peer has the last 12 bits of the peer's address."""
_NETEM = 0x2000
"""Major number of a peer's netem, minus the minor number of its class."""
_PROBE = 0x1C00 << 16
_LOOPBACK = 1
_FILTERS = 0x80000000
"""Handle of a peer's filter, minus the minor number of its class."""
_INFO = 1 << 16 | socket.htons(0x0800)
"""Filters of one priority, for IPv4."""
_HTB_VERSION, _UNLIMITED = 3, 10
_RATE, _MOST = 6, 7
_REORDER, _CORRUPT, _DELAY_NS, _JITTER_NS = 3, 4, 10, 11
_ETHERNET = 1
_TICK_NS = 64
_DESTINATION = 16
"""Offset of the destination address in a packet."""
_NO_LIMIT = 400e9
_BURST_S = 0.008
"""A class may send this much at once, because the kernel may wake up late."""
_LEAST_BURST_BYTES = 3200
_QUANTUM_BYTES = 60000
_LONGEST_QUEUE = 50_000
_LEAST_DELAY_S = 0.001
"""The delay of packets that other packets overtake."""
_ALL_OF_THEM = 0xFFFFFFFF


class Shaped(NamedTuple):
    """Bytes that a class has sent."""

    bytes: int
    waiting: int
    """How many packets are queued now."""


class Shaping:
    """The queues of one device."""

    def __init__(self, index: int) -> None:
        self._index = index

    def make(self, peers: Mapping[str, Mapping[str, float]], cable_bits_per_s: float | None) -> None:
        """Set the conditions of packets to each peer, and the rate of all of them together.

        Raises:
            OSError: The kernel does not support it.
        """
        if not peers:
            if self.exists():
                self._do(_DELETE_QUEUE, _HTB, _ROOT)
            return
        root = encode_nested(_OPTIONS, encode_attribute(2, struct.pack("=5I", _HTB_VERSION, _UNLIMITED, 0, 0, 0)))
        self._do(_NEW_QUEUE, _HTB, _ROOT, "htb", root, flags=EXCLUSIVE, unless=errno.EEXIST)
        cable = cable_bits_per_s or _NO_LIMIT
        self._class(_CABLE, _HTB, cable, cable)
        queues = {handle for handle, _, _ in self._dumped(_QUEUES)}
        for address, asked in peers.items():
            number, most = _number(address), min(asked.get("rate_bits_per_s") or _NO_LIMIT, cable)
            self._class(number, _HTB | _CABLE, min(most, cable / len(peers)), most)
            self._netem(number, asked, there=(_NETEM + number) << 16 in queues)
            key = struct.pack("=BBBxHHhhIIIii", 1, 0, 1, 0, 0, 0, 0, 0, _ALL_OF_THEM, _packed(address), _DESTINATION, 0)
            chosen = encode_attribute(1, struct.pack("=I", _HTB | number))
            options = encode_nested(_OPTIONS, chosen, encode_attribute(5, key))
            self._do(
                _NEW_FILTER, _FILTERS | number, _HTB, "u32", options, flags=EXCLUSIVE, info=_INFO, unless=errno.EEXIST
            )
        known = {_HTB | number for number in (*map(_number, peers), _CABLE)}
        for handle in {handle for handle, _, _ in self._dumped(_CLASSES)} - known:
            if handle & 0xFFFF0000 == _HTB:  # packets to these peers bypass it
                self._do(_DELETE_FILTER, _FILTERS | handle & 0xFFFF, _HTB, info=_INFO, unless=errno.ENOENT)
                self._do(_DELETE_CLASS, handle, 0, unless=errno.ENOENT)

    def exists(self) -> bool:
        """Return whether the root exists."""
        return any(handle == _HTB and kind == b"htb\0" for handle, kind, _ in self._dumped(_QUEUES))

    def read_counters(self, peer: str) -> Shaped:
        """Return the bytes sent to a peer since its class was created.

        Raises:
            OSError: There is no class.
        """
        for handle, _, attributes in self._dumped(_CLASSES):
            if handle == _HTB | _number(peer):
                stats = dict(netlink.read_attributes(attributes[_STATS]))
                return Shaped(struct.unpack_from("=Q", stats[1])[0], struct.unpack_from("=I", stats[3])[0])
        raise OSError(errno.ENOENT, f"the node has no queue for packets to {peer}")

    def supports(self, kind: str) -> bool:
        """Return whether the kernel has queues of this kind; the request changes nothing."""
        probe = Shaping(_LOOPBACK)
        try:
            probe._do(_NEW_QUEUE, _PROBE, _ROOT, kind, flags=EXCLUSIVE)
        except OSError as refused:  # if the kernel knows the kind, it complains about missing options
            return refused.errno != errno.ENOENT
        probe._do(_DELETE_QUEUE, _PROBE, _ROOT)
        return True

    def _class(self, number: int, parent: int, rate: float, most: float) -> None:
        rates = [struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(int(b / 8), _ALL_OF_THEM)) for b in (rate, most)]
        bursts = [int(max(_BURST_S, _LEAST_BURST_BYTES * 8 / bits) * 1e9 / _TICK_NS) for bits in (rate, most)]
        whole = [encode_attribute(kind, struct.pack("=Q", int(b / 8))) for kind, b in ((_RATE, rate), (_MOST, most))]
        options = encode_attribute(1, b"".join(rates) + struct.pack("=5I", *bursts, _QUANTUM_BYTES, 0, 0))
        self._do(_NEW_CLASS, _HTB | number, parent, "htb", encode_nested(_OPTIONS, options, *whole))

    def _netem(self, number: int, asked: Mapping[str, float], *, there: bool) -> None:
        handle, parent = (_NETEM + number) << 16, _HTB | number
        if not any(asked.get(name) for name in LATE):
            if there:
                self._do(_DELETE_QUEUE, handle, parent)
            return
        reorder, corrupt = asked.get("reorder", 0.0), asked.get("corrupt", 0.0)
        delay_s = max(asked.get("delay_s", 0.0), _LEAST_DELAY_S if reorder else 0.0)
        options = struct.pack("=6I", 0, _LONGEST_QUEUE, 0, 1 if reorder else 0, 0, 0)
        for kind, share in ((_REORDER, reorder), (_CORRUPT, corrupt)):  # an omitted option keeps its value
            options += encode_attribute(kind, struct.pack("=2I", round(share * _ALL_OF_THEM), 0))
        for kind, seconds in ((_DELAY_NS, delay_s), (_JITTER_NS, asked.get("jitter_s", 0.0))):
            options += encode_attribute(kind, struct.pack("=q", round(seconds * 1e9)))
        self._do(_NEW_QUEUE, handle, parent, "netem", encode_attribute(_OPTIONS, options), flags=netlink.REPLACE)

    def _do(
        self,
        request: int,
        handle: int,
        parent: int,
        kind: str = "",
        options: bytes = b"",
        *,
        flags: int = 0,
        info: int = 0,
        unless: int = 0,
    ) -> None:
        """Create, change, or remove a queue, class, or filter; ignore the error `unless`."""
        named = encode_attribute(_KIND, kind.encode() + b"\0") + options if kind else b""
        body = _HEAD.pack(0, 0, self._index, handle, parent, info) + named
        try:
            send_requests(ROUTE, [encode_request(request, netlink.ACK | flags | (netlink.CREATE if kind else 0), body)])
        except OSError as refused:
            if refused.errno != unless:
                raise

    def _dumped(self, kind: int) -> list[tuple[int, bytes, dict[int, bytes]]]:
        """Return the handle, the kind, and the attributes of each queue or class of the device."""
        dumped = []
        for body in send_requests(ROUTE, [encode_request(kind, netlink.DUMP, _HEAD.pack(0, 0, self._index, 0, 0, 0))]):
            _, _, index, handle, _, _ = _HEAD.unpack_from(body)
            attributes = dict(netlink.read_attributes(body[_HEAD.size :]))
            if index == self._index:
                dumped.append((handle, attributes[_KIND], attributes))
        return dumped


def _packed(address: str) -> int:
    """Return an address as a native number with the bytes that it has in a packet."""
    return int.from_bytes(socket.inet_aton(address), sys.byteorder)


def _number(address: str) -> int:
    """Return the minor number of a peer's class: peers share a network, so their addresses differ at the end."""
    return int.from_bytes(socket.inet_aton(address), "big") & 0x0FFF or 0x0FFF


NAME, CABLE = "lab", "lab_cable"
"""Tables of the rules of links, and of a cable that is out."""
NAMES = "names"
"""The counter of name queries; the others are a word and the address of a peer: `drop 10.0.0.2`."""
_ARRIVES, _LEAVES = "arrives", "leaves"
_BEFORE_OTHERS = -150
"""After connection tracking, and before address translation (Docker gives its resolver another port there)."""
_DNS = 53
_RST = b"\x04"
_UNREACHABLE, _RESET = 0, 1
_COUNT = nf.encode_expression("counter")
_DROP = nf.set_verdict(nf.DROP)
_NO_RESET = [nf.load_bytes(nf.TRANSPORT, nf.TCP_FLAGS, 1), nf.mask_loaded(_RST), nf.compare_loaded(b"\0")]
"""Except the reset packet of a connection, which has to arrive."""


def replace_rules(arriving: Mapping[str, Mapping[str, float]], leaving: Mapping[str, float], *, names: bool) -> None:
    """Replace all rules by these; without any, remove the table.

    Args:
        arriving: By address of the sender, the shares of its packets to `reset`, `drop`, or lose at random (`loss`).
        leaving: By address of a peer, the share of packets to it that are sent twice.
        names: Whether processes can query names.

    Raises:
        OSError: The kernel does not support it.
    """
    rules = []
    for address, asked in arriving.items():
        sent_by = nf.match_address(nf.SOURCE, nf.EQUAL, address)
        if asked.get("reset"):
            parts = [*sent_by, *nf.match_protocol(socket.IPPROTO_TCP), *_NO_RESET, _COUNT, nf.reject_packet(_RESET)]
            rules.append(nf.Rule(_ARRIVES, parts, f"reset {address}"))
        if asked.get("drop"):
            rules.append(nf.Rule(_ARRIVES, [*sent_by, _COUNT, _DROP], f"drop {address}"))
        elif asked.get("loss"):
            rules.append(nf.Rule(_ARRIVES, [*sent_by, _COUNT], f"from {address}"))
            parts = [*sent_by, *nf.match_randomly(asked["loss"]), _COUNT, _DROP]
            rules.append(nf.Rule(_ARRIVES, parts, f"loss {address}"))
    for address, share in leaving.items():
        sent_to = nf.match_address(nf.DESTINATION, nf.EQUAL, address)
        rules.append(nf.Rule(_LEAVES, [*sent_to, _COUNT], f"to {address}"))
        parts = [*sent_to, *nf.match_randomly(share), _COUNT, *nf.duplicate_packet(address)]
        rules.append(nf.Rule(_LEAVES, parts, f"duplicate {address}"))
    if not names:
        asks = [nf.load_bytes(nf.TRANSPORT, nf.PORT, 2), nf.compare_loaded(_DNS.to_bytes(2, "big")), _COUNT]
        for protocol, answer in ((socket.IPPROTO_UDP, _UNREACHABLE), (socket.IPPROTO_TCP, _RESET)):
            rules.append(nf.Rule(_LEAVES, [*nf.match_protocol(protocol), *asks, nf.reject_packet(answer)], NAMES))
    if rules or has_rules():
        chains = [nf.Chain(_ARRIVES, nf.INPUT, _BEFORE_OTHERS), nf.Chain(_LEAVES, nf.OUTPUT, _BEFORE_OTHERS)]
        nf.replace_table(nf.IPV4, NAME, chains, rules)


def count_packets() -> dict[str, int]:
    """Return how many packets matched the rules, by counter."""
    return nf.count_packets(nf.IPV4, NAME)


def has_rules(table: str = NAME) -> bool:
    """Return whether there are rules, or that the cable is out."""
    return nf.has_table(nf.IPV4, table)


def pull_cable(*, out: bool) -> None:
    """Drop all packets of this node but those on its loopback, or none, as if its network cable were out.

    Raises:
        OSError: The kernel does not support it.
    """
    ways = ((_ARRIVES, nf.INPUT, nf.ORIGIN), (_LEAVES, nf.OUTPUT, nf.DEVICE))
    chains = [nf.Chain(name, hook, _BEFORE_OTHERS, nf.DROP) for name, hook, _ in ways]
    rules = [nf.Rule(name, [*nf.match_loopback(device), nf.set_verdict(nf.ACCEPT)]) for name, _, device in ways]
    nf.replace_table(nf.IPV4, CABLE, chains, rules if out else [])


_BY_FAMILY, _DESTROY = 20, 21
_OPEN = ~(1 << 6 | 1 << 7 | 1 << 10) & 0xFFF
"""All TCP states except TIME_WAIT, CLOSE, and LISTEN."""
_REQUEST = struct.Struct("=BBBBI")
_ID = slice(4, 52)
"""The identity of a socket in an answer (`linux/inet_diag.h`)."""
_PEER = 20
"""Offset of the peer's address in it."""
_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv6 address that contains an IPv4 address."""


def reset_connections(peers: Collection[str]) -> int:
    """Reset both ends of every connection to one of these addresses; return how many there were.

    The kernel sends a reset packet to the other end, and reports ECONNABORTED to its own.

    Raises:
        OSError: The kernel does not support it (CONFIG_INET_DIAG_DESTROY).
    """
    count = 0
    for family, prefix in ((socket.AF_INET, b""), (socket.AF_INET6, _MAPPED)):
        ends = tuple(prefix + socket.inet_aton(peer) for peer in peers)
        head = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _OPEN)
        question = netlink.encode_request(_BY_FAMILY, netlink.DUMP, head + bytes(_ID.stop - _ID.start))
        for name in [answer[_ID] for answer in netlink.send_requests(netlink.SOCK_DIAG, [question])]:
            if name[_PEER:].startswith(ends):
                try:
                    request = netlink.encode_request(_DESTROY, netlink.ACK, head + name)
                    netlink.send_requests(netlink.SOCK_DIAG, [request])
                    count += 1
                except OSError as error:
                    if error.errno != errno.ENOENT:  # else it has just ended
                        raise
    return count
