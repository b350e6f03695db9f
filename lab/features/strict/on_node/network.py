"""The network of a strict node: it can send packets to the other nodes of its cluster only.

The agent closes the network before it can fork a worker. The rules are in the node's own network namespace, which
only the agent can change. They drop packets that routes do not stop: a socket with a bound address or device sends
broadcasts and multicasts without a route. A dropped packet causes no ARP request, so it takes no entry in the
machine's neighbor table.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence

from ....node import netlink
from . import nf_tables as nf

CONNECTIONS_PER_S, DATAGRAMS_PER_S, AT_ONCE = 50, 300, 4096
"""Limits of packets to other nodes: of new connections, and of packets of other protocols, each of which may be a new
flow. The machine's flow table (`nf_conntrack_max`, often 262,144) keeps a closed connection for 120 s and an
unanswered datagram for 30 s. So a node fills 2 x 4,096 + 6,000 + 9,000 entries there. A burst may exceed the rate."""
TABLE = "lab_strict"
_RESOLVER = "127.0.0.11"
"""The engine's resolver, inside the node's own namespace."""
_BEFORE_FLOWS_ARE_KNOWN = -300
_SYN, _SYN_OR_ACK = b"\x02", b"\x12"
_OVER_LIMIT = 1
_REMOVE_ROUTE, _MAIN_TABLE, _ANY_SCOPE = 25, 254, 255
_ACCEPT = [nf.encode_expression("notrack"), nf.set_verdict(nf.ACCEPT)]
"""Accept a packet without an entry in the namespace's own flow table."""
_ON_LOOPBACK = [*nf.match_loopback(nf.DEVICE), *_ACCEPT]


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
    _make_table(nf.IPV4, _rules(first, last))
    try:
        _make_table(nf.IPV6, [_ON_LOOPBACK])
    except OSError:
        if os.path.exists("/proc/net/if_inet6"):
            raise
    _remove_default_route()


def _rules(first: str, last: str) -> list[list[bytes]]:
    """Return the rules of outgoing packets; the kernel drops a packet that no rule accepts."""
    opens = [nf.load_bytes(nf.TRANSPORT, nf.TCP_FLAGS, 1), nf.mask_loaded(_SYN_OR_ACK), nf.compare_loaded(_SYN)]
    connections, datagrams = _over_limit(CONNECTIONS_PER_S), _over_limit(DATAGRAMS_PER_S)
    return [
        [*nf.match_address(nf.DESTINATION, nf.EQUAL, _RESOLVER), nf.set_verdict(nf.DROP)],
        _ON_LOOPBACK,
        [*nf.match_protocol(socket.IPPROTO_TCP), *opens, connections, nf.set_verdict(nf.DROP)],
        [*nf.match_protocol(socket.IPPROTO_TCP, nf.UNEQUAL), datagrams, nf.set_verdict(nf.DROP)],
        [
            *nf.match_address(nf.DESTINATION, nf.AT_LEAST, first),
            *nf.match_address(nf.DESTINATION, nf.AT_MOST, last),
            *_ACCEPT,
        ],
    ]


def _over_limit(per_s: int) -> bytes:
    rate, unit = (netlink.encode_attribute(kind, struct.pack(">Q", value)) for kind, value in ((1, per_s), (2, 1)))
    return nf.encode_expression("limit", rate, unit, AT_ONCE, 0, _OVER_LIMIT)


def _make_table(family: int, leaving: Sequence[Sequence[bytes]]) -> None:
    """Create the table of one protocol."""
    arrives = nf.Chain("arrives", nf.BEFORE_ROUTING, _BEFORE_FLOWS_ARE_KNOWN)
    leaves = nf.Chain("leaves", nf.OUTPUT, _BEFORE_FLOWS_ARE_KNOWN, nf.DROP)
    rules = [nf.Rule("arrives", [nf.encode_expression("notrack")]), *(nf.Rule("leaves", parts) for parts in leaving)]
    nf.replace_table(family, TABLE, [arrives, leaves], rules)


def _remove_default_route() -> None:
    """Have the kernel refuse other addresses at once, instead of asking for a gateway that does not exist."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _MAIN_TABLE, 0, _ANY_SCOPE, 0, 0)
    try:
        netlink.send_requests(netlink.ROUTE, [netlink.encode_request(_REMOVE_ROUTE, netlink.ACK, route)])
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
