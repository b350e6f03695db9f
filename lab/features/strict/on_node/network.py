"""The network of a strict node: it can send packets to the other nodes of its cluster only.

The agent closes the network before it can fork a worker. The rules are in the node's own network namespace, which
only the agent can change. They drop packets that routes do not stop: a socket with a bound address or device sends
broadcasts and multicasts without a route. A dropped packet causes no ARP request, so it takes no entry in the
machine's neighbor table. Filters are set over netlink, with the numbers of <linux/netfilter/nf_tables.h>.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....node import netlink

IPV4, IPV6 = 2, 10
BEFORE_ROUTING, INPUT, OUTPUT = 0, 1, 3
"""Hooks of chains."""
DROP, ACCEPT = 0, 1
EQUAL, UNEQUAL, LESS, AT_MOST, AT_LEAST = 0, 1, 2, 3, 5
NETWORK, TRANSPORT = 1, 2
"""Headers of a packet."""
SOURCE, DESTINATION, TCP_FLAGS, PORT = 12, 16, 13, 2
"""Offsets in the header; PORT is the receiver's."""
DEVICE, PROTOCOL = 5, 16
"""Metadata of a packet: its outgoing device, and its protocol."""
_SUBSYSTEM = 10
_NEW_TABLE, _TABLES, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _RULES = 0, 1, 2, 3, 6, 7
_BEGIN, _END = 0x10, 0x11
_REGISTER = 1


class Chain(NamedTuple):
    """A list of rules for packets."""

    name: str
    hook: int
    priority: int
    """Chains with a lower one come first."""
    policy: int = ACCEPT
    """Verdict on a packet that no rule decides on."""


class Rule(NamedTuple):
    """One rule of a chain."""

    chain: str
    parts: Sequence[bytes]
    comment: str = ""


def replace_table(family: int, name: str, chains: Sequence[Chain], rules: Sequence[Rule]) -> None:
    """Replace the table of this name by one with these rules, in one transaction; without rules, remove it.

    Raises:
        OSError: the kernel refuses, and keeps the previous table.
    """
    table = netlink.encode_attribute(1, _text(name))
    requests = [(_NEW_TABLE, table), (_DELETE_TABLE, table)]  # made first, so that there is one to delete
    if rules:
        requests += [(_NEW_TABLE, table), *((_NEW_CHAIN, table + _chain(one)) for one in chains)]
        requests += [(_NEW_RULE, table + _rule(one)) for one in rules]
    flags = netlink.ACK | netlink.CREATE | netlink.APPEND
    whole = [netlink.encode_request(_SUBSYSTEM << 8 | kind, flags, _head(family) + body) for kind, body in requests]
    begin, end = (netlink.encode_request(kind, 0, _head(0, _SUBSYSTEM)) for kind in (_BEGIN, _END))
    netlink.send_requests(netlink.NETFILTER, [begin, *whole, end], answers=len(whole))


def has_table(family: int, name: str) -> bool:
    """Return whether there is a table of this name."""
    return any(attributes.get(1) == _text(name) for attributes in _dumped(_TABLES, family))


def count_packets(family: int, name: str) -> dict[str, int]:
    """Return the number of packets that the counting rules of a table have matched, by comment."""
    packets: dict[str, int] = {}
    for attributes in _dumped(_RULES, family):
        for _, item in netlink.read_attributes(attributes.get(4, b"") if attributes.get(1) == _text(name) else b""):
            expression = dict(netlink.read_attributes(item))
            if expression[1] == _text("counter"):
                met = dict(netlink.read_attributes(expression[2]))[2]
                comment = attributes.get(7, b"").decode()
                packets[comment] = packets.get(comment, 0) + int.from_bytes(met, "big")
    return packets


def _dumped(kind: int, family: int) -> list[Mapping[int, bytes]]:
    question = netlink.encode_request(_SUBSYSTEM << 8 | kind, netlink.DUMP, _head(family))
    return [dict(netlink.read_attributes(body[4:])) for body in netlink.send_requests(netlink.NETFILTER, [question])]


def _head(family: int, subsystem: int = 0) -> bytes:
    return struct.pack(">BBH", family, 0, subsystem)


def _chain(chain: Chain) -> bytes:
    at = netlink.encode_nested(4, _number(1, chain.hook), _number(2, chain.priority & 0xFFFFFFFF))
    named = netlink.encode_attribute(3, _text(chain.name))
    return named + at + _number(5, chain.policy) + netlink.encode_attribute(7, _text("filter"))


def _rule(rule: Rule) -> bytes:
    comment = netlink.encode_attribute(7, rule.comment.encode()) if rule.comment else b""
    return netlink.encode_attribute(2, _text(rule.chain)) + netlink.encode_nested(4, *rule.parts) + comment


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _number(kind: int, value: int) -> bytes:
    return netlink.encode_attribute(kind, struct.pack(">I", value))


# -- expressions of rules; one loads bytes, and the next compares them


def encode_expression(name: str, *attributes: int | bytes) -> bytes:
    """Encode an expression by its name, with attributes numbered from 1: a number, or its bytes as they are."""
    numbered = [_number(at, one) if isinstance(one, int) else one for at, one in enumerate(attributes, 1)]
    return netlink.encode_nested(1, netlink.encode_attribute(1, _text(name)), netlink.encode_nested(2, *numbered))


def _data(kind: int, value: bytes) -> bytes:
    return netlink.encode_nested(kind, netlink.encode_attribute(1, value))


def load_bytes(header: int, offset: int, size: int) -> bytes:
    """Load bytes of the packet."""
    return encode_expression("payload", _REGISTER, header, offset, size)


def load_meta(what: int) -> bytes:
    """Load DEVICE or PROTOCOL."""
    return encode_expression("meta", _REGISTER, what)


def compare_loaded(value: bytes, how: int = EQUAL) -> bytes:
    """Continue only if the comparison of the loaded bytes with the value holds."""
    return encode_expression("cmp", _REGISTER, how, _data(3, value))


def mask_loaded(bits: bytes) -> bytes:
    """Keep these bits of the loaded bytes."""
    return encode_expression("bitwise", _REGISTER, _REGISTER, len(bits), _data(4, bits), _data(5, bytes(len(bits))))


def match_address(which: int, how: int, value: str) -> list[bytes]:
    """Continue only if the comparison of the SOURCE or DESTINATION with an address holds."""
    return [load_bytes(NETWORK, which, 4), compare_loaded(socket.inet_aton(value), how)]


def match_protocol(number: int, how: int = EQUAL) -> list[bytes]:
    """Continue only if the packet is of this protocol, or with UNEQUAL of another one."""
    return [load_meta(PROTOCOL), compare_loaded(bytes([number]), how)]


def match_randomly(share: float) -> list[bytes]:
    """Continue with this share of the packets."""
    parts = 1 << 24
    drawn = encode_expression("numgen", _REGISTER, parts, 1)
    ordered = encode_expression("byteorder", _REGISTER, _REGISTER, 1, 4, 4)
    return [drawn, ordered, compare_loaded(round(share * parts).to_bytes(4, "big"), LESS)]


def duplicate_packet(to: str) -> list[bytes]:
    """Send the packet a second time, to this address."""
    target = encode_expression("immediate", _REGISTER, _data(2, socket.inet_aton(to)))
    return [target, encode_expression("dup", _REGISTER)]


def reject_packet(kind: int) -> bytes:
    """Refuse the packet: 0 with a message that its port is closed, 1 with a reset of its connection."""
    return encode_expression("reject", kind, netlink.encode_attribute(2, b"\3"))


def set_verdict(code: int) -> bytes:
    """DROP or ACCEPT the packet."""
    return encode_expression("immediate", 0, netlink.encode_nested(2, netlink.encode_nested(2, _number(1, code))))


CONNECTIONS_PER_S, DATAGRAMS_PER_S, AT_ONCE = 50, 300, 4096
"""Limits of packets to other nodes: of new connections, and of packets of other protocols, each of which may be a new
flow. The machine's flow table (`nf_conntrack_max`, often 262,144) keeps a closed connection for 120 s and an
unanswered datagram for 30 s. So a node fills 2 x 4,096 + 6,000 + 9,000 entries there. A burst may exceed the rate."""
TABLE = "lab_strict"
_RESOLVER = "127.0.0.11"
"""The engine's resolver, inside the node's own namespace."""
_LOOPBACK = 1
"""Number of the loopback device in every network namespace."""
_BEFORE_FLOWS_ARE_KNOWN = -300
_SYN, _SYN_OR_ACK = b"\x02", b"\x12"
_OVER_LIMIT = 1
_REMOVE_ROUTE, _MAIN_TABLE, _ANY_SCOPE = 25, 254, 255
_ACCEPT = [encode_expression("notrack"), set_verdict(ACCEPT)]
"""Accept a packet without an entry in the namespace's own flow table."""
_ON_LOOPBACK = [load_meta(DEVICE), compare_loaded(struct.pack("=I", _LOOPBACK)), *_ACCEPT]


def confine_network(peers: Sequence[str]) -> None:
    """Close the network of this node except to its peers, or end this process, which would become its agent.

    Args:
        peers: The first and the last of their addresses; empty: do nothing.
    """
    if not peers:
        return
    first, last = peers
    try:
        close_network(first, last)
    except OSError as error:
        sys.exit(f"a strict cluster needs a closed network, but this node cannot close its own: {error}")


def close_network(first: str, last: str) -> None:
    """Allow packets to the addresses from `first` to `last` only, and limit the rate of new flows.

    Raises:
        OSError: The kernel refuses; then it has none of the rules.
    """
    _make_table(IPV4, _rules(first, last))
    try:
        _make_table(IPV6, [_ON_LOOPBACK])
    except OSError:
        if os.path.exists("/proc/net/if_inet6"):
            raise
    _remove_default_route()


def _rules(first: str, last: str) -> list[list[bytes]]:
    """Return the rules of outgoing packets; the kernel drops a packet that no rule accepts."""
    opens = [load_bytes(TRANSPORT, TCP_FLAGS, 1), mask_loaded(_SYN_OR_ACK), compare_loaded(_SYN)]
    connections, datagrams = _over_limit(CONNECTIONS_PER_S), _over_limit(DATAGRAMS_PER_S)
    return [
        [*match_address(DESTINATION, EQUAL, _RESOLVER), set_verdict(DROP)],
        _ON_LOOPBACK,
        [*match_protocol(socket.IPPROTO_TCP), *opens, connections, set_verdict(DROP)],
        [*match_protocol(socket.IPPROTO_TCP, UNEQUAL), datagrams, set_verdict(DROP)],
        [
            *match_address(DESTINATION, AT_LEAST, first),
            *match_address(DESTINATION, AT_MOST, last),
            *_ACCEPT,
        ],
    ]


def _over_limit(per_s: int) -> bytes:
    rate, unit = (netlink.encode_attribute(kind, struct.pack(">Q", value)) for kind, value in ((1, per_s), (2, 1)))
    return encode_expression("limit", rate, unit, AT_ONCE, 0, _OVER_LIMIT)


def _make_table(family: int, leaving: Sequence[Sequence[bytes]]) -> None:
    """Create the table of one protocol."""
    arrives = Chain("arrives", BEFORE_ROUTING, _BEFORE_FLOWS_ARE_KNOWN)
    leaves = Chain("leaves", OUTPUT, _BEFORE_FLOWS_ARE_KNOWN, DROP)
    rules = [Rule("arrives", [encode_expression("notrack")]), *(Rule("leaves", parts) for parts in leaving)]
    replace_table(family, TABLE, [arrives, leaves], rules)


def _remove_default_route() -> None:
    """Have the kernel refuse other addresses at once, instead of asking for a gateway that does not exist."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _MAIN_TABLE, 0, _ANY_SCOPE, 0, 0)
    try:
        netlink.send_requests(netlink.ROUTE, [netlink.encode_request(_REMOVE_ROUTE, netlink.ACK, route)])
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
