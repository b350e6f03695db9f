"""Which packets do not reach a node, are refused there, or leave it twice; connections that are reset.

- One nf_tables table of the lab's own, each rule with a counter. Packets are lost where they arrive, not where they are
  sent: a sender whose own kernel drops a packet knows of it. The table is replaced as a whole, in one transaction: no
  packet sees a half of it.
- Open TCP connections to a peer are reset: who only waits on one would never hear of it otherwise.
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
"""What is counted of questions for names; else a word and the address of a peer: `drop 10.0.0.2`."""
_ARRIVES, _LEAVES = "arrives", "leaves"
_BEFORE_OTHERS = -150
"""After connections are known, before addresses are changed (Docker gives its resolver another port there)."""
_DNS = 53
_RST = b"\x04"
_UNREACHABLE, _RESET = 0, 1
_COUNT = nf.encode_expression("counter")
_DROP = nf.set_verdict(nf.DROP)
_NO_RESET = [nf.load_bytes(nf.TRANSPORT, nf.TCP_FLAGS, 1), nf.mask_loaded(_RST), nf.compare_loaded(b"\0")]
"""Not itself the reset of a connection: that one has to arrive."""


def replace_rules(arriving: Mapping[str, Mapping[str, float]], leaving: Mapping[str, float], *, names: bool) -> None:
    """Have these rules and no others; without any, no table.

    Args:
        arriving: by address of the sender, the shares of its packets that are to `reset`, `drop` or be lost (`loss`).
        leaving: by address of a peer, the share of packets to it that are sent twice.
        names: whether names can be asked for.

    Raises:
        OSError: the kernel cannot.
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
    """How many packets the rules have met, by what they are for."""
    return nf.count_packets(nf.IPV4, NAME)


def has_rules() -> bool:
    """Whether there are any rules."""
    return nf.has_table(nf.IPV4, NAME)


_BY_FAMILY, _DESTROY = 20, 21
_OPEN = ~(1 << 6 | 1 << 7 | 1 << 10) & 0xFFF
"""Neither TIME_WAIT nor CLOSE nor LISTEN."""
_REQUEST = struct.Struct("=BBBBI")
_ID = slice(4, 52)
"""What names a socket in an answer (`linux/inet_diag.h`)."""
_PEER = 20
"""Where in that its peer's address begins."""
_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv6 address begins that is an IPv4 one."""


def reset_connections(peers: Collection[str]) -> int:
    """Reset every connection to one of these addresses, both ends of it; returns how many there were.

    The kernel sends a reset packet to the other end, and reports ECONNABORTED to its own.

    Raises:
        OSError: the kernel cannot (CONFIG_INET_DIAG_DESTROY).
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
                    netlink.send_requests(
                        netlink.SOCK_DIAG, [netlink.encode_request(_DESTROY, netlink.ACK, head + name)]
                    )
                    count += 1
                except OSError as error:
                    if error.errno != errno.ENOENT:  # else it has just ended
                        raise
    return count
