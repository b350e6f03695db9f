"""The network of a strict node: packets leave it for the other nodes of its cluster, and for nothing else.

The agent closes the network before it can fork a worker. The rules are those of the node's own network namespace,
which only the agent may change. They drop what routes do not stop: a socket that is bound to an address or a device
sends broadcasts and multicasts without any route. A dropped packet asks for no hardware address, so it takes no entry
in the machine's table of neighbours.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence

from ....node import netlink

CONNECTIONS_PER_S, DATAGRAMS_PER_S, AT_ONCE = 50, 300, 4096
"""What may leave for other nodes: new connections, and packets of other protocols, each of which may be a new flow. The
machine's own table of flows (`nf_conntrack_max`, often 262,144) keeps a closed connection for 120 s and a datagram that
nobody answered for 30 s. So a node fills 2 x 4,096 + 6,000 + 9,000 places there. More may leave at once."""
TABLE = "lab_strict"
_RESOLVER = "127.0.0.11"
"""The engine's resolver, inside of the node's own namespace."""
_IPV4, _IPV6 = 2, 10
_LOOPBACK = 1
"""Number of the loopback device in every network namespace."""
_SUBSYSTEM = 10
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = (_SUBSYSTEM << 8 | kind for kind in (0, 3, 6))
_BEGIN, _END = 0x10, 0x11
_ARRIVES, _LEAVES = 0, 3
"""Numbers of the hooks before routing and after a local process."""
_BEFORE_FLOWS_ARE_KNOWN = -300
_DROP, _ACCEPT = 0, 1
_EQUAL, _AT_MOST, _AT_LEAST, _UNEQUAL = 0, 3, 5, 1
_NETWORK, _TRANSPORT = 1, 2
_DESTINATION, _FLAGS = 16, 13
_DEVICE, _PROTOCOL = 5, 16
_SYN, _SYN_OR_ACK = b"\x02", b"\x12"
_OVER_LIMIT = 1
_REMOVE_ROUTE, _MAIN_TABLE, _ANY_SCOPE = 25, 254, 255


def confine(peers: Sequence[str]) -> None:
    """Close the network of this node for all but its peers, or end this process, which is to become its agent.

    Args:
        peers: the first and the last of their addresses; nothing is done without any.
    """
    if not peers:
        return
    first, last = peers
    try:
        close_network(first, last)
    except OSError as error:
        sys.exit(f"its network cannot be closed, as a strict cluster needs it: {error}")


def close_network(first: str, last: str) -> None:
    """Let packets leave for the addresses from `first` to `last` only, and slow down who opens very many flows.

    Raises:
        OSError: the kernel refuses; then it has none of the rules.
    """
    _send_rules(_IPV4, _rules(first, last))
    try:
        _send_rules(_IPV6, [[*_on_device(_LOOPBACK), *_accept()]])
    except OSError:
        if os.path.exists("/proc/net/if_inet6"):
            raise
    _remove_default_route()


def _rules(first: str, last: str) -> list[list[bytes]]:
    """What becomes of a packet that leaves; one that no rule accepts is dropped."""
    address = _load(_NETWORK, _DESTINATION, 4)
    peers = [address, _compare(_AT_LEAST, socket.inet_aton(first)), _compare(_AT_MOST, socket.inet_aton(last))]
    tcp = bytes([socket.IPPROTO_TCP])
    opens = [_load(_TRANSPORT, _FLAGS, 1), _mask(_SYN_OR_ACK), _compare(_EQUAL, _SYN)]
    return [
        [address, _compare(_EQUAL, socket.inet_aton(_RESOLVER)), _verdict(_DROP)],
        [*_on_device(_LOOPBACK), *_accept()],
        [_meta(_PROTOCOL), _compare(_EQUAL, tcp), *opens, _over_limit(CONNECTIONS_PER_S), _verdict(_DROP)],
        [_meta(_PROTOCOL), _compare(_UNEQUAL, tcp), _over_limit(DATAGRAMS_PER_S), _verdict(_DROP)],
        [*peers, *_accept()],
    ]


def _send_rules(family: int, leaving: Sequence[Sequence[bytes]]) -> None:
    """Make the table of one protocol in one transaction."""
    requests = [
        _request(_NEW_TABLE, family, netlink.attribute(1, _text(TABLE))),
        _chain(family, "arrives", _ARRIVES, _ACCEPT),
        _rule(family, "arrives", [_expression("notrack")]),
        _chain(family, "leaves", _LEAVES, _DROP),
        *(_rule(family, "leaves", parts) for parts in leaving),
    ]
    edges = [netlink.message(kind, 0, struct.pack("=BBH", 0, 0, socket.htons(_SUBSYSTEM))) for kind in (_BEGIN, _END)]
    netlink.send(netlink.NETFILTER, [edges[0], *requests, edges[1]], answers=len(requests))


def _remove_default_route() -> None:
    """Have the kernel refuse other addresses at once, where it would ask for a gateway that does not exist."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _MAIN_TABLE, 0, _ANY_SCOPE, 0, 0)
    try:
        netlink.send(netlink.ROUTE, [netlink.message(_REMOVE_ROUTE, netlink.ACK, route)])
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


# -- messages of nf_tables: numbers are those of <linux/netfilter/nf_tables.h>


def _request(kind: int, family: int, body: bytes, flags: int = 0) -> bytes:
    head = struct.pack("=BBH", family, 0, 0)
    return netlink.message(kind, netlink.ACK | netlink.CREATE | flags, head + body)


def _chain(family: int, name: str, hook: int, policy: int) -> bytes:
    at = netlink.nested(4, _number(1, hook), _number(2, _BEFORE_FLOWS_ARE_KNOWN & 0xFFFFFFFF))
    named = netlink.attribute(1, _text(TABLE)) + netlink.attribute(3, _text(name))
    return _request(_NEW_CHAIN, family, named + at + _number(5, policy) + netlink.attribute(7, _text("filter")))


def _rule(family: int, chain: str, parts: Sequence[bytes]) -> bytes:
    named = netlink.attribute(1, _text(TABLE)) + netlink.attribute(2, _text(chain))
    return _request(_NEW_RULE, family, named + netlink.nested(4, *parts), netlink.APPEND)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _number(kind: int, value: int) -> bytes:
    return netlink.attribute(kind, struct.pack(">I", value))


def _expression(name: str, *attributes: bytes) -> bytes:
    return netlink.nested(1, netlink.attribute(1, _text(name)), netlink.nested(2, *attributes))


def _data(kind: int, value: bytes) -> bytes:
    return netlink.nested(kind, netlink.attribute(1, value))


def _load(base: int, offset: int, size: int) -> bytes:
    return _expression("payload", _number(1, 1), _number(2, base), _number(3, offset), _number(4, size))


def _meta(key: int) -> bytes:
    return _expression("meta", _number(1, 1), _number(2, key))


def _compare(how: int, value: bytes) -> bytes:
    return _expression("cmp", _number(1, 1), _number(2, how), _data(3, value))


def _mask(mask: bytes) -> bytes:
    zero = bytes(len(mask))
    return _expression("bitwise", _number(1, 1), _number(2, 1), _number(3, len(mask)), _data(4, mask), _data(5, zero))


def _on_device(index: int) -> list[bytes]:
    return [_meta(_DEVICE), _compare(_EQUAL, struct.pack("=I", index))]


def _over_limit(per_s: int) -> bytes:
    rate, unit = (netlink.attribute(kind, struct.pack(">Q", value)) for kind, value in ((1, per_s), (2, 1)))
    return _expression("limit", rate, unit, _number(3, AT_ONCE), _number(4, 0), _number(5, _OVER_LIMIT))


def _verdict(code: int) -> bytes:
    return _expression("immediate", _number(1, 0), netlink.nested(2, netlink.nested(2, _number(1, code))))


def _accept() -> list[bytes]:
    """Accept a packet without a place in the namespace's own table of flows."""
    return [_expression("notrack"), _verdict(_ACCEPT)]
