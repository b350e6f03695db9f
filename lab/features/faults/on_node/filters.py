"""Packet filters of a node: drop, refuse, or duplicate packets, and reset connections.

- One nf_tables table of the lab has a counter for each rule. The receiver drops packets, not the sender, because a
  sender would notice that its own kernel drops a packet. Each change replaces the whole table in one transaction, so no
  packet meets a part of it.
- Open TCP connections to a peer are reset, because a process that only waits would not notice the fault otherwise.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Mapping

from ....node import netlink
from ....node import nf_tables as nf

NAME = "lab"
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


def has_rules() -> bool:
    """Return whether there are rules."""
    return nf.has_table(nf.IPV4, NAME)


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
        names = [answer[_ID] for answer in netlink.send_requests(netlink.SOCK_DIAG, [question])]
        for name in names:
            if name[_PEER:].startswith(ends):
                try:
                    request = netlink.encode_request(_DESTROY, netlink.ACK, head + name)
                    netlink.send_requests(netlink.SOCK_DIAG, [request])
                    count += 1
                except OSError as error:
                    if error.errno != errno.ENOENT:  # else it has just ended
                        raise
    return count
