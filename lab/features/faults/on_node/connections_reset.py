"""Resets the TCP connections to a peer that are open: who only waits on one would never hear of it otherwise."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

from pyroute2.netlink import NETLINK_SOCK_DIAG
from pyroute2.netlink.diag import (
    SOCK_DESTROY,
    SOCK_DIAG_BY_FAMILY,
    SS_ALL,
    SS_CLOSE,
    SS_LISTEN,
    SS_TIME_WAIT,
    inet_diag_msg,
    inet_diag_req,
)

from .kernel import ABSENT, Kernel, Refused, filled, unless

_OPEN = SS_ALL & ~(1 << SS_TIME_WAIT | 1 << SS_CLOSE | 1 << SS_LISTEN)
_MAPPED = "::ffff:"
"""How an IPv6 address begins that is an IPv4 one."""
_NAME = ("idiag_sport", "idiag_dport", "idiag_if", "idiag_cookie")


def reset(peers: Collection[str]) -> int:
    """Reset every connection to one of these addresses, both ends of it; returns how many there were.

    The other end is told by a packet, its own by its kernel, which calls it aborted.

    Raises:
        OSError: the kernel cannot (CONFIG_INET_DIAG_DESTROY).
    """
    ends = {*peers, *(_MAPPED + peer for peer in peers)}
    count = 0
    with Kernel(NETLINK_SOCK_DIAG, {SOCK_DIAG_BY_FAMILY: inet_diag_msg}) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            for found in kernel.dump(SOCK_DIAG_BY_FAMILY, _asked(family)):
                if found["idiag_dst"] not in ends:
                    continue
                try:
                    kernel.do(SOCK_DESTROY, _asked(family, found))
                    count += 1
                except Refused as refused:  # it has just ended
                    unless(ABSENT, refused)
    return count


def _asked(family: int, one: Any = None) -> Any:
    """A request about all open connections of a family, or about one of them."""
    request = filled(inet_diag_req(), sdiag_family=family, sdiag_protocol=socket.IPPROTO_TCP, idiag_states=_OPEN)
    if one is not None:
        filled(request, **{name: one[name] for name in _NAME})
        for name in ("idiag_src", "idiag_dst"):
            packed = socket.inet_pton(family, one[name])
            words = [int.from_bytes(packed[at : at + 4], "big") for at in range(0, len(packed), 4)]
            request[name] = (*words, 0, 0, 0)[:4]
    return request
