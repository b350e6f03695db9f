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
from ....node import nf_tables as nf

CONNECTIONS_PER_S, DATAGRAMS_PER_S, AT_ONCE = 50, 300, 4096
"""What may leave for other nodes: new connections, and packets of other protocols, each of which may be a new flow. The
machine's own table of flows (`nf_conntrack_max`, often 262,144) keeps a closed connection for 120 s and a datagram that
nobody answered for 30 s. So a node fills 2 x 4,096 + 6,000 + 9,000 places there. More may leave at once."""
TABLE = "lab_strict"
_RESOLVER = "127.0.0.11"
"""The engine's resolver, inside of the node's own namespace."""
_LOOPBACK = 1
"""Number of the loopback device in every network namespace."""
_BEFORE_FLOWS_ARE_KNOWN = -300
_SYN, _SYN_OR_ACK = b"\x02", b"\x12"
_OVER_LIMIT = 1
_REMOVE_ROUTE, _MAIN_TABLE, _ANY_SCOPE = 25, 254, 255
_ACCEPT = [nf.encode_expression("notrack"), nf.set_verdict(nf.ACCEPT)]
"""Accept a packet without a place in the namespace's own table of flows."""
_ON_LOOPBACK = [nf.load_meta(nf.DEVICE), nf.compare_loaded(struct.pack("=I", _LOOPBACK)), *_ACCEPT]


def confine_network(peers: Sequence[str]) -> None:
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
    _make_table(nf.IPV4, _rules(first, last))
    try:
        _make_table(nf.IPV6, [_ON_LOOPBACK])
    except OSError:
        if os.path.exists("/proc/net/if_inet6"):
            raise
    _remove_default_route()


def _rules(first: str, last: str) -> list[list[bytes]]:
    """What becomes of a packet that leaves; one that no rule accepts is dropped."""
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
    """Make the table of one protocol."""
    arrives = nf.Chain("arrives", nf.BEFORE_ROUTING, _BEFORE_FLOWS_ARE_KNOWN)
    leaves = nf.Chain("leaves", nf.OUTPUT, _BEFORE_FLOWS_ARE_KNOWN, nf.DROP)
    rules = [nf.Rule("arrives", [nf.encode_expression("notrack")]), *(nf.Rule("leaves", parts) for parts in leaving)]
    nf.replace_table(family, TABLE, [arrives, leaves], rules)


def _remove_default_route() -> None:
    """Have the kernel refuse other addresses at once, where it would ask for a gateway that does not exist."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _MAIN_TABLE, 0, _ANY_SCOPE, 0, 0)
    try:
        netlink.send_requests(netlink.ROUTE, [netlink.encode_request(_REMOVE_ROUTE, netlink.ACK, route)])
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
