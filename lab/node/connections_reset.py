"""Resets the TCP connections to a peer that are open: who only waits on one would never hear of it otherwise."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection

from .netlink import ABSENT, Message, Netlink, Refused, unless

_SOCK_DIAG = 4
_BY_FAMILY, _DESTROY = 20, 21
_OPEN = ~((1 << 6) | (1 << 7) | (1 << 10)) & 0xFFF  # neither TIME_WAIT nor CLOSE nor LISTEN
_REQUEST = struct.Struct("=BBBBI")
_ID, _ID_BYTES, _PEER = 4, 48, 20
"""Where in a socket's answer stands what names it, and in that the address of the peer (`linux/inet_diag.h`)."""
_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv6 address begins that is an IPv4 one."""


def reset(peers: Collection[str]) -> int:
    """Reset every connection to one of these addresses, both ends of it; returns how many there were.

    The other end is told by a packet, its own by its kernel, which calls it aborted.

    Raises:
        OSError: the kernel cannot (CONFIG_INET_DIAG_DESTROY).
    """
    addresses = [socket.inet_aton(peer) for peer in peers]
    wanted = {socket.AF_INET: addresses, socket.AF_INET6: [_MAPPED + address for address in addresses]}
    count = 0
    with Netlink(_SOCK_DIAG) as kernel:
        for family, ends in wanted.items():
            head = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _OPEN)
            for body in kernel.dump(Message(_BY_FAMILY, 0, head + bytes(_ID_BYTES))):
                name = body[_ID : _ID + _ID_BYTES]
                if not name[_PEER:].startswith(tuple(ends)):
                    continue
                try:
                    kernel.do(Message(_DESTROY, 0, head + name))
                    count += 1
                except Refused as refused:  # it has just ended
                    unless(ABSENT, refused)
    return count
